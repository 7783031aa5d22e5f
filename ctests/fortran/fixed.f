C     The six collectives from Fortran 77 by mpif.h, MPI_IN_PLACE
C     included: unconverted it would be an ordinary address to a C
C     wrapper, and corrupt silently.
      program fixed
      implicit none
      include 'mpif.h'
      integer most
      parameter (most = 20000)
      integer rank, nranks, ierr, root, i, n, k, round
      integer sizes(4)
      integer mine(most), got(most), all(64*most)
      double precision x(most), y(most)
      complex z(8), w(8)
      logical yes(3), both(3)
      integer pairs(2, 5), best(2, 5)
      character*12 text
      integer sum
      data sizes /1, 5, 700, most/

      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nranks, ierr)
      call check(nranks .le. 64, 1)
      sum = nranks*(nranks - 1)/2
      do 200 round = 1, 2
      do 100 k = 1, 4
         n = sizes(k)
         root = mod(k + round, nranks)
         do 10 i = 1, n
            mine(i) = rank + i
            got(i) = -1
            x(i) = dble(rank) + 0.5d0*i
   10    continue
         call MPI_ALLREDUCE(mine, got, n, MPI_INTEGER, MPI_SUM,
     &        MPI_COMM_WORLD, ierr)
         do 20 i = 1, n
            call check(got(i) .eq. sum + nranks*i, 2)
   20    continue
         call MPI_ALLREDUCE(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION,
     &        MPI_MAX, MPI_COMM_WORLD, ierr)
         do 30 i = 1, n
            call check(x(i) .eq. dble(nranks - 1) + 0.5d0*i, 3)
   30    continue

         if (rank .eq. root .and. n .lt. 500) then
            call MPI_REDUCE(MPI_IN_PLACE, mine, n, MPI_INTEGER,
     &           MPI_SUM, root, MPI_COMM_WORLD, ierr)
            do 40 i = 1, n
               call check(mine(i) .eq. sum + nranks*i, 4)
   40       continue
         else
            call MPI_REDUCE(mine, got, n, MPI_INTEGER, MPI_SUM, root,
     &           MPI_COMM_WORLD, ierr)
         end if

         do 50 i = 1, n
            y(i) = -1
            if (rank .eq. root) y(i) = root + i
   50    continue
         call MPI_BCAST(y, n, MPI_DOUBLE_PRECISION, root,
     &        MPI_COMM_WORLD, ierr)
         do 60 i = 1, n
            call check(y(i) .eq. dble(root + i), 5)
   60    continue

         do 70 i = 1, n*nranks
            all(i) = -1
   70    continue
         do 72 i = 1, n
            all(rank*n + i) = 1000*rank + i
   72    continue
         call MPI_ALLGATHER(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n,
     &        MPI_INTEGER, MPI_COMM_WORLD, ierr)
         do 74 i = 1, n*nranks
            call check(all(i) .eq.
     &           1000*((i - 1)/n) + mod(i - 1, n) + 1, 6)
   74    continue

         if (rank .eq. root) then
            call MPI_SCATTER(all, n, MPI_INTEGER, MPI_IN_PLACE, n,
     &           MPI_INTEGER, root, MPI_COMM_WORLD, ierr)
         else
            call MPI_SCATTER(all, n, MPI_INTEGER, got, n, MPI_INTEGER,
     &           root, MPI_COMM_WORLD, ierr)
            do 80 i = 1, n
               call check(got(i) .eq. 1000*rank + i, 7)
   80       continue
         end if
         call MPI_BARRIER(MPI_COMM_WORLD, ierr)
  100 continue
  200 continue

C     The types and operations that only Fortran has.
      do 110 i = 1, 8
         z(i) = cmplx(rank, i)
  110 continue
      call MPI_ALLREDUCE(z, w, 8, MPI_COMPLEX, MPI_SUM,
     &     MPI_COMM_WORLD, ierr)
      do 120 i = 1, 8
         call check(w(i) .eq. cmplx(sum, nranks*i), 8)
  120 continue
      yes(1) = .true.
      yes(2) = rank .ne. 0
      yes(3) = .false.
      call MPI_ALLREDUCE(yes, both, 3, MPI_LOGICAL, MPI_LAND,
     &     MPI_COMM_WORLD, ierr)
      call check(both(1) .and. .not. both(2) .and. .not. both(3), 9)
      call MPI_ALLREDUCE(yes, both, 3, MPI_LOGICAL, MPI_LOR,
     &     MPI_COMM_WORLD, ierr)
      call check(both(1) .and. (both(2) .eqv. nranks .gt. 1), 10)
      do 130 i = 1, 5
         pairs(1, i) = mod(rank + i, nranks)
         pairs(2, i) = rank
  130 continue
      call MPI_ALLREDUCE(pairs, best, 5, MPI_2INTEGER, MPI_MAXLOC,
     &     MPI_COMM_WORLD, ierr)
      do 140 i = 1, 5
         call check(best(1, i) .eq. nranks - 1, 11)
         call check(mod(best(2, i) + i, nranks) .eq. nranks - 1, 12)
  140 continue
      text = '            '
      if (rank .eq. 0) text = 'twelve chars'
      call MPI_BCAST(text, 12, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
      call check(text .eq. 'twelve chars', 13)
      call MPI_FINALIZE(ierr)
      if (rank .eq. 0) print '(a)', 'fortran_fixed: ok'
      end

      subroutine check(truth, number)
      implicit none
      include 'mpif.h'
      logical truth
      integer number, ierr
      if (truth) return
      print *, 'fortran_fixed: check', number, 'failed'
      call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      end
