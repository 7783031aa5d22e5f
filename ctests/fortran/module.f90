! The six collectives by `use mpi`: user-defined operations written in Fortran, derived datatypes, MPI_BOTTOM
! with absolute addresses, MPI_IN_PLACE.
module operations
  implicit none
  integer, parameter :: prime = 10007
contains
  ! Pairs (a, b) are the maps a*x + b; their composition does not commute.
  subroutine compose(left, right, n, datatype)
    integer :: n, datatype
    integer :: left(2, n), right(2, n)
    integer :: i, a, b
    if (datatype < -huge(0)) stop 1
    do i = 1, n
      a = mod(left(1, i) * right(1, i), prime)
      b = mod(left(1, i) * right(2, i) + left(2, i), prime)
      right(1, i) = a
      right(2, i) = b
    end do
  end subroutine compose

  subroutine largest_absolute(left, right, n, datatype)
    integer :: n, datatype
    double precision :: left(n), right(n)
    if (datatype < -huge(0)) stop 1
    right = max(abs(left), abs(right))
  end subroutine largest_absolute
end module operations

program module_test
  use mpi
  use operations
  implicit none
  integer, parameter :: most = 12000
  integer :: rank, nranks, ierr, round
  integer :: sizes(4) = [1, 6, 900, most]

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  do round = 1, 4
    call try_predefined(sizes(round), mod(round, nranks))
    call try_own_operations(sizes(round), mod(round + 1, nranks))
    call try_columns(mod(round, nranks))
    call try_bottom(mod(round, nranks))
  end do
  call MPI_Finalize(ierr)
  if (rank == 0) print '(a)', 'fortran_module: ok'

contains

  subroutine check(truth, what)
    logical, intent(in) :: truth
    character(*), intent(in) :: what
    integer :: code
    if (truth) return
    print *, 'fortran_module: wrong: ', what, ' on rank ', rank
    call MPI_Abort(MPI_COMM_WORLD, 1, code)
  end subroutine check

  subroutine try_predefined(n, root)
    integer, intent(in) :: n, root
    double precision :: x(n), y(n)
    integer :: all(n * nranks), part(n), i
    x = [(dble(rank + i), i = 1, n)]
    call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    call check(all_equal(y, [(dble(nranks * (nranks - 1) / 2 + nranks * i), i = 1, n)]), 'Allreduce')
    call MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, ierr)
    call check(all_equal(x, [(dble(i), i = 1, n)]), 'Allreduce in place')

    x = [(dble(rank + i), i = 1, n)]
    if (rank == root .and. n < 250) then
      call MPI_Reduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, ierr)
      call check(all_equal(x, [(dble(nranks * (nranks - 1) / 2 + nranks * i), i = 1, n)]), 'Reduce in place')
    else
      call MPI_Reduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, root, MPI_COMM_WORLD, ierr)
    end if

    x = -1
    if (rank == root) x = [(dble(root * i), i = 1, n)]
    call MPI_Bcast(x, n, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, ierr)
    call check(all_equal(x, [(dble(root * i), i = 1, n)]), 'Bcast')

    all = -1
    all(rank * n + 1:rank * n + n) = [(rank + 10 * i, i = 1, n)]
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    do i = 0, nranks - 1
      call check(all(i * n + n) == i + 10 * n .and. all(i * n + 1) == i + 10, 'Allgather in place')
    end do
    if (rank == root) then
      call MPI_Scatter(all, n, MPI_INTEGER, MPI_IN_PLACE, n, MPI_INTEGER, root, MPI_COMM_WORLD, ierr)
      call check(all(root * n + 1) == root + 10, 'Scatter in place')
    else
      part = -1
      call MPI_Scatter(all, n, MPI_INTEGER, part, n, MPI_INTEGER, root, MPI_COMM_WORLD, ierr)
      call check(part(1) == rank + 10 .and. part(n) == rank + 10 * n, 'Scatter')
    end if
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine try_predefined

  logical function all_equal(a, b)
    double precision, intent(in) :: a(:), b(:)
    all_equal = all(a == b)
  end function all_equal

  subroutine try_own_operations(n, root)
    integer, intent(in) :: n, root
    integer :: op, pair, mine(2, n), got(2, n), expected(2, n), other(2, n), r, i, count
    double precision :: x(n), y(n)
    call MPI_Type_contiguous(2, MPI_INTEGER, pair, ierr)
    call MPI_Type_commit(pair, ierr)
    count = n
    do r = nranks - 1, 0, -1
      do i = 1, n
        other(:, i) = [1 + mod(r * 13 + i, 97), 1 + mod(r + i * 3, 89)]
      end do
      if (r == nranks - 1) expected = other
      if (r < nranks - 1) call compose(other, expected, count, pair)
      if (r == rank) mine = other
    end do
    call MPI_Op_create(compose, .false., op, ierr)
    call MPI_Allreduce(mine, got, n, pair, op, MPI_COMM_WORLD, ierr)
    call check(all(got == expected), 'Allreduce, not commutative')
    got = -1
    call MPI_Reduce(mine, got, n, pair, op, root, MPI_COMM_WORLD, ierr)
    call MPI_Op_free(op, ierr)
    call MPI_Type_free(pair, ierr)
    if (rank == root) call check(all(got == expected), 'Reduce, not commutative')

    x = [(-dble(rank + i), i = 1, n)]
    call MPI_Op_create(largest_absolute, .true., op, ierr)
    call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, ierr)
    call MPI_Op_free(op, ierr)
    if (nranks > 1) call check(all_equal(y, [(dble(nranks - 1 + i), i = 1, n)]), 'Allreduce, own operation')
  end subroutine try_own_operations

  ! Rows of a matrix: one element of every column, interleaved.
  subroutine try_columns(root)
    integer, intent(in) :: root
    integer :: m(50, 40), row, one_row, i, j
    integer(MPI_ADDRESS_KIND) :: extent
    call MPI_Type_vector(40, 1, 50, MPI_INTEGER, row, ierr)
    extent = 4
    call MPI_Type_create_resized(row, 0_MPI_ADDRESS_KIND, extent, one_row, ierr)
    call MPI_Type_commit(one_row, ierr)
    m = -1
    if (rank == root) m = reshape([(i, i = 1, 2000)], [50, 40])
    call MPI_Bcast(m, 7, one_row, root, MPI_COMM_WORLD, ierr)
    do j = 1, 40
      do i = 1, 50
        call check(m(i, j) == merge(i + 50 * (j - 1), -1, i <= 7 .or. rank == root), 'Bcast of rows')
      end do
    end do
    call MPI_Type_free(one_row, ierr)
    call MPI_Type_free(row, ierr)
  end subroutine try_columns

  ! A number and a text that lie anywhere, by their addresses.
  subroutine try_bottom(root)
    integer, intent(in) :: root
    double precision, save :: number
    character(8), save :: text
    integer(MPI_ADDRESS_KIND) :: at(2)
    integer :: both
    number = merge(3.25d0, 0d0, rank == root)
    text = merge('eight ch', '        ', rank == root)
    call MPI_Get_address(number, at(1), ierr)
    call MPI_Get_address(text, at(2), ierr)
    call MPI_Type_create_struct(2, [1, 8], at, [MPI_DOUBLE_PRECISION, MPI_CHARACTER], both, ierr)
    call MPI_Type_commit(both, ierr)
    call MPI_Bcast(MPI_BOTTOM, 1, both, root, MPI_COMM_WORLD, ierr)
    call MPI_Type_free(both, ierr)
    call check(number == 3.25d0 .and. text == 'eight ch', 'Bcast of MPI_BOTTOM')
  end subroutine try_bottom
end program module_test
