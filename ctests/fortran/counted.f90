! Calls by mpif.h, `use mpi` and `use mpi_f08`: each arrives at huddle once, whatever the MPI library makes of it.
subroutine by_header
  implicit none
  include 'mpif.h'
  integer :: i, sum, ierr
  do i = 1, 10
    call MPI_Allreduce(i, sum, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    if (sum /= i) call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end do
end subroutine by_header

subroutine by_module
  use mpi
  implicit none
  integer :: i, sum, ierr
  do i = 1, 10
    call MPI_Allreduce(i, sum, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    if (sum /= i) call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end do
end subroutine by_module

subroutine by_module_f08
  use mpi_f08
  implicit none
  integer :: i, sum
  do i = 1, 10
    call MPI_Allreduce(i, sum, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
    if (sum /= i) call MPI_Abort(MPI_COMM_WORLD, 3)
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
end subroutine by_module_f08

program counted
  use mpi
  implicit none
  integer :: rank, ierr
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call by_header
  call by_module
  call by_module_f08
  call MPI_Finalize(ierr)
  if (rank == 0) print '(a)', 'fortran_counted: ok'
end program counted
