/* A call that fills every register and some of the stack, and an answer that tells who got it and what arrived. */
#include <string.h>

struct pair { double x; long n; };
struct big { long v[5]; };
enum who { NATIVE = 1, NATIVE_PROFILING, ENGINE };

#define PARAMETERS                                                                                                   \
    long a, double b, const void *c, float d, int e, struct pair f, long g, double h, double i, double j, double k,  \
        double l, struct big m, long n, double o, int p
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p
#define SAMPLE                                                                                                       \
    11, 1.5, (const void *)13, 2.5f, 17, ((struct pair){3.5, 19}), 23, 4.5, 5.5, 6.5, 7.5, 8.5,                      \
        ((struct big){{29, 31, 37, 41, 43}}), 47, 9.5, 53

typedef struct big function(PARAMETERS);

static inline struct big answer(enum who who, PARAMETERS)
{
    return (struct big){{who, a * 2 + (long)c * 3 + e * 5 + f.n * 7 + g * 11 + n * 13 + p * 17,
                         (long)(b * 2 + d * 4 + f.x * 8 + h * 16 + i * 32 + j * 64 + k * 128 + l * 256 + o * 512),
                         m.v[0] + m.v[1] * 3 + m.v[2] * 5, m.v[3] + m.v[4] * 3}};
}
