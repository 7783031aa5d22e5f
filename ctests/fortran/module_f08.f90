! The six collectives by `use mpi_f08`: handles are types, ierror is optional, and sections of arrays with a
! stride are passed as they are (where the MPI supports it they become derived datatypes inside its wrapper).
module operations_f08
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
contains
  ! Not commutative, but associative.
  subroutine keep_left(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: left(:), right(:)
    if (datatype == MPI_DATATYPE_NULL) return
    call c_f_pointer(invec, left, [len])
    call c_f_pointer(inoutvec, right, [len])
    right = left
  end subroutine keep_left

  subroutine largest_and_sum(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: left(:, :), right(:, :)
    if (datatype == MPI_DATATYPE_NULL) return
    call c_f_pointer(invec, left, [2, len])
    call c_f_pointer(inoutvec, right, [2, len])
    right(1, :) = max(left(1, :), right(1, :))
    right(2, :) = left(2, :) + right(2, :)
  end subroutine largest_and_sum
end module operations_f08

program module_f08_test
  use mpi_f08
  use operations_f08
  implicit none
  integer, parameter :: most = 9000
  integer :: rank, nranks, round
  integer :: sizes(4) = [1, 7, 800, most]

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks)
  do round = 1, 4
    call try_predefined(sizes(round), mod(round, nranks), MPI_COMM_WORLD)
    call try_own_operations(sizes(round), mod(round, nranks))
    call try_sections(mod(round, nranks))
    call try_bottom(mod(round, nranks))
  end do
  call try_reversed()
  call MPI_Finalize()
  if (rank == 0) print '(a)', 'fortran_module_f08: ok'

contains

  subroutine check(truth, what)
    logical, intent(in) :: truth
    character(*), intent(in) :: what
    if (truth) return
    print *, 'fortran_module_f08: wrong: ', what, ' on rank ', rank
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine check

  subroutine try_predefined(n, root, comm)
    integer, intent(in) :: n, root
    type(MPI_Comm), intent(in) :: comm
    integer :: mine(n), got(n), all_of_them(n * nranks), me, i, ierr
    real :: x(n)
    call MPI_Comm_rank(comm, me)
    mine = [(me + i, i = 1, n)]
    got = -1
    call MPI_Allreduce(mine, got, n, MPI_INTEGER, MPI_SUM, comm)
    call check(all(got == [(nranks * (nranks - 1) / 2 + nranks * i, i = 1, n)]), 'Allreduce')
    call MPI_Allreduce(MPI_IN_PLACE, mine, n, MPI_INTEGER, MPI_MAX, comm, ierr)
    call check(ierr == MPI_SUCCESS .and. all(mine == [(nranks - 1 + i, i = 1, n)]), 'Allreduce in place')

    mine = [(me + i, i = 1, n)]
    if (me == root .and. n < 500) then
      call MPI_Reduce(MPI_IN_PLACE, mine, n, MPI_INTEGER, MPI_SUM, root, comm)
      call check(all(mine == [(nranks * (nranks - 1) / 2 + nranks * i, i = 1, n)]), 'Reduce in place')
    else
      call MPI_Reduce(mine, got, n, MPI_INTEGER, MPI_SUM, root, comm)
    end if

    x = merge(2.5, -1.0, me == root)
    call MPI_Bcast(x, n, MPI_REAL, root, comm)
    call check(all(x == 2.5), 'Bcast')

    all_of_them = -1
    mine = me
    call MPI_Allgather(mine, n, MPI_INTEGER, all_of_them, n, MPI_INTEGER, comm)
    call check(all(all_of_them == [((i - 1) / n, i = 1, n * nranks)]), 'Allgather')
    all_of_them = -1
    all_of_them(me * n + 1:me * n + n) = me * 3
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all_of_them, n, MPI_INTEGER, comm)
    call check(all(all_of_them == [((i - 1) / n * 3, i = 1, n * nranks)]), 'Allgather in place')

    if (me == root) then
      call MPI_Scatter(all_of_them, n, MPI_INTEGER, MPI_IN_PLACE, n, MPI_INTEGER, root, comm)
      call check(all(all_of_them == [((i - 1) / n * 3, i = 1, n * nranks)]), 'Scatter in place')
    else
      call MPI_Scatter(all_of_them, n, MPI_INTEGER, got, n, MPI_INTEGER, root, comm)
      call check(all(got == me * 3), 'Scatter')
    end if
    call MPI_Barrier(comm)
  end subroutine try_predefined

  subroutine try_own_operations(n, root)
    integer, intent(in) :: n, root
    type(MPI_Op) :: op
    type(MPI_Datatype) :: pair
    integer :: mine(n), got(n), pairs(2, n), both(2, n), i
    mine = [(rank * 10 + i, i = 1, n)]
    got = -1
    call MPI_Op_create(keep_left, .false., op)
    call MPI_Allreduce(mine, got, n, MPI_INTEGER, op, MPI_COMM_WORLD)
    call check(all(got == [(i, i = 1, n)]), 'Allreduce, not commutative')
    got = -1
    call MPI_Reduce(mine, got, n, MPI_INTEGER, op, root, MPI_COMM_WORLD)
    call MPI_Op_free(op)
    if (rank == root) call check(all(got == [(i, i = 1, n)]), 'Reduce, not commutative')

    call MPI_Type_contiguous(2, MPI_INTEGER, pair)
    call MPI_Type_commit(pair)
    pairs(1, :) = mine
    pairs(2, :) = mine
    call MPI_Op_create(largest_and_sum, .true., op)
    call MPI_Allreduce(pairs, both, n, pair, op, MPI_COMM_WORLD)
    call MPI_Op_free(op)
    call MPI_Type_free(pair)
    call check(all(both(1, :) == [((nranks - 1) * 10 + i, i = 1, n)]), 'Allreduce of pairs: largest')
    call check(all(both(2, :) == [(10 * (nranks * (nranks - 1) / 2) + nranks * i, i = 1, n)]), 'Allreduce of pairs: sum')
  end subroutine try_own_operations

  subroutine try_sections(root)
    integer, intent(in) :: root
    integer :: a(60), b(2, 60), i
    a = -1
    if (rank == root) a = [(i, i = 1, 60)]
    call MPI_Bcast(a(1:59:2), 30, MPI_INTEGER, root, MPI_COMM_WORLD)
    call check(all(a(1:59:2) == [(i, i = 1, 59, 2)]), 'Bcast of a section')
    if (rank /= root) call check(all(a(2:60:2) == -1), 'Bcast beside a section')
    ! Not in reductions, and not where blocks follow each other: MPICH 4.0 makes one element of a whole section.
    a = rank + 1
    b = -1
    call MPI_Scatter(a, 60 / nranks, MPI_INTEGER, b(2, 1:60 / nranks), 60 / nranks, MPI_INTEGER, root, MPI_COMM_WORLD)
    call check(all(b(2, 1:60 / nranks) == root + 1) .and. all(b(1, :) == -1), 'Scatter of sections')
  end subroutine try_sections

  subroutine try_bottom(root)
    integer, intent(in) :: root
    integer, save :: far(100)
    integer(MPI_ADDRESS_KIND) :: at(1)
    type(MPI_Datatype) :: absolute
    integer :: i
    far = -1
    if (rank == root) far = [(i * 2, i = 1, 100)]
    call MPI_Get_address(far, at(1))
    call MPI_Type_create_hindexed(1, [100], at, MPI_INTEGER, absolute)
    call MPI_Type_commit(absolute)
    call MPI_Bcast(MPI_BOTTOM, 1, absolute, root, MPI_COMM_WORLD)
    call MPI_Type_free(absolute)
    call check(all(far == [(i * 2, i = 1, 100)]), 'Bcast of MPI_BOTTOM')
  end subroutine try_bottom

  subroutine try_reversed()
    type(MPI_Comm) :: reversed
    integer :: i
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, reversed)
    do i = 1, 3
      call try_predefined(sizes(i), mod(i, nranks), reversed)
    end do
    call MPI_Comm_free(reversed)
  end subroutine try_reversed
end program module_f08_test
