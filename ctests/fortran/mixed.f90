! A user-defined operation whose function is Fortran, used from C (mixed.c), and one of C used from Fortran: the
! calling conventions differ, and only the MPI library knows which function is which.
subroutine fortran_compose(left, right, n, datatype)
  implicit none
  integer :: n, datatype
  integer :: left(2, n), right(2, n)
  integer :: i, a, b
  if (datatype < -huge(0)) stop 1
  do i = 1, n
    a = mod(left(1, i) * right(1, i), 10007)
    b = mod(left(1, i) * right(2, i) + left(2, i), 10007)
    right(:, i) = [a, b]
  end do
end subroutine fortran_compose

program mixed
  use mpi
  implicit none
  interface
    subroutine use_from_c(op, pair, size) bind(C)
      use, intrinsic :: iso_c_binding, only: c_int
      integer(c_int), value :: op, pair, size
    end subroutine use_from_c
    subroutine make_in_c(op) bind(C)
      use, intrinsic :: iso_c_binding, only: c_int
      integer(c_int) :: op
    end subroutine make_in_c
  end interface
  external :: fortran_compose
  integer :: rank, nranks, ierr, op, pair, i, root
  integer :: mine(300), got(300)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  call MPI_Type_contiguous(2, MPI_INTEGER, pair, ierr)
  call MPI_Type_commit(pair, ierr)
  call MPI_Op_create(fortran_compose, .false., op, ierr)
  call use_from_c(op, pair, 1)
  call use_from_c(op, pair, 5)
  call use_from_c(op, pair, 1500)
  call MPI_Op_free(op, ierr)
  call MPI_Type_free(pair, ierr)

  call make_in_c(op)
  do root = 0, nranks - 1
    mine = [(rank * 1000 + i, i = 1, 300)]
    got = -1
    call MPI_Reduce(mine, got, 300, MPI_INTEGER, op, root, MPI_COMM_WORLD, ierr)
    if (rank == root .and. any(got /= [((nranks - 1) * 1000 + i, i = 1, 300)])) then
      print *, 'fortran_mixed: wrong: Reduce with an operation of C'
      call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
    end if
  end do
  call MPI_Op_free(op, ierr)
  call MPI_Finalize(ierr)
  if (rank == 0) print '(a)', 'fortran_mixed: ok'
end program mixed
