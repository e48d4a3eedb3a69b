/* What the machine can do: the rollout of benchmarks/rollout.py (rkmk4, a quaternion law with two
   gains) by hand. A vector holds 16 bodies with AVX-512 and 8 without it. The whole time loop runs
   for one vector after the other, on several threads. The arithmetic is that of the library: the
   macros COS, SINC and POLES are its coefficients, and large angles are reduced where a lane of the
   vector has one. peak() measures how many multiplications with addition the machine does. */

#include <math.h>
#include <pthread.h>

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float V __attribute__((vector_size(4 * LANES)));
typedef int M __attribute__((vector_size(4 * LANES)));

static inline V all(float x) { return x - (V){}; }
static inline V pick(M p, V a, V b) { return (V)((p & (M)a) | (~p & (M)b)); }

#define EACH_LANE(name, function) \
    static inline V name(V x) { \
        for (int i = 0; i < LANES; i++) x[i] = function(x[i]); \
        return x; \
    }
EACH_LANE(root, __builtin_sqrtf)
EACH_LANE(nearest, __builtin_rintf)
EACH_LANE(below, __builtin_floorf)

static const float cosine[] = COS, sine[] = SINC, poles[] = POLES;
#define POLYNOMIAL(name, c) \
    static inline V name(V s) { \
        V t = all(c[sizeof c / 4 - 1]); \
        for (int n = sizeof c / 4 - 2; n >= 0; n--) t = t * s + c[n]; \
        return t; \
    }
POLYNOMIAL(cos_series, cosine)
POLYNOMIAL(sinc_series, sine)
POLYNOMIAL(pole_series, poles)

#define PI 3.14159265358979f

static inline int everywhere(M p) { /* whether it holds in all lanes */
    int both = -1;
    for (int i = 0; i < LANES; i++) both &= p[i];
    return both;
}

/* cos x and sin(x)/(2 x) of s = x^2, reduced modulo pi beyond the switch */
static __attribute__((noinline, cold)) void far(V s, V *cosine_of, V *half_sinc_of) {
    M near = s < 4.0f;
    V x = root(pick(near, all(4.0f), s)), k = nearest(x / PI), reduced = x - PI * k;
    V one = all(1.0f);
    V sign = pick(near, one, 1.0f - 2.0f * (k - 2.0f * below(0.5f * k)));
    V r = pick(near, s, reduced * reduced);
    *cosine_of = sign * cos_series(r);
    *half_sinc_of = 0.5f * pick(near, one, sign * reduced) * sinc_series(r) / pick(near, one, x);
}

static inline void turned(const V q[4], const V u[3], V out[4]) { /* q exp(u) */
    V s = 0.25f * (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]), c, f;
    if (__builtin_expect(everywhere(s < 4.0f), 1)) {
        c = cos_series(s);
        f = 0.5f * sinc_series(s);
    } else {
        far(s, &c, &f);
    }
    V a = f * u[0], b = f * u[1], d = f * u[2];
    out[0] = q[0] * c - q[1] * a - q[2] * b - q[3] * d;
    out[1] = q[0] * a + q[1] * c + q[2] * d - q[3] * b;
    out[2] = q[0] * b - q[1] * d + q[2] * c + q[3] * a;
    out[3] = q[0] * d + q[1] * b - q[2] * a + q[3] * c;
}

static inline void cross(const V a[3], const V b[3], V out[3]) {
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

static inline void dexpinv(const V u[3], const V v[3], V out[3]) {
    V s = 0.25f * (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]), once[3], twice[3];
    const float pole = PI * PI;
    cross(u, v, once);
    cross(u, once, twice);
    V first_two = (10.0f * pole - 4.0f * s) / ((pole - s) * (4.0f * pole - s));
    V b = 0.25f * pick(s < pole, first_two + pole_series(s), all(NAN));
    for (int i = 0; i < 3; i++) out[i] = v[i] + 0.5f * once[i] + b * twice[i];
}

struct body { const float *inertia, *inverse, *gains; };

static inline V row_times(const float *row, const V v[3]) {
    return row[0] * v[0] + row[1] * v[1] + row[2] * v[2];
}

static inline void accelerated(const struct body *body, const V q[4], const V w[3], V out[3]) {
    V m[3], gyroscopic[3], tau[3], side = pick(q[0] < 0.0f, all(-1.0f), all(1.0f));
    const float *gains = body->gains;
    for (int i = 0; i < 3; i++) m[i] = row_times(body->inertia + 3 * i, w);
    cross(w, m, gyroscopic);
    for (int i = 0; i < 3; i++)
        tau[i] = -2.0f * gains[0] * side * q[1 + i] - gains[1] * w[i] - gyroscopic[i];
    for (int i = 0; i < 3; i++) out[i] = row_times(body->inverse + 3 * i, tau);
}

static inline void step(const struct body *body, V q[4], V w[3], float h) {
    V u[3], turn[4], rate[3], k[3], a[3], sum_k[3], sum_a[3];
    accelerated(body, q, w, a);
    for (int i = 0; i < 3; i++) { k[i] = w[i]; sum_k[i] = k[i]; sum_a[i] = a[i]; }
    for (int stage = 1; stage < 4; stage++) {
        float share = stage == 3 ? h : h / 2, weight = stage == 3 ? 1.0f : 2.0f;
        for (int i = 0; i < 3; i++) { u[i] = share * k[i]; rate[i] = w[i] + share * a[i]; }
        turned(q, u, turn);
        accelerated(body, turn, rate, a);
        dexpinv(u, rate, k);
        for (int i = 0; i < 3; i++) { sum_k[i] += weight * k[i]; sum_a[i] += weight * a[i]; }
    }
    for (int i = 0; i < 3; i++) { u[i] = h / 6 * sum_k[i]; w[i] += h / 6 * sum_a[i]; }
    turned(q, u, turn);
    V square = turn[0] * turn[0] + turn[1] * turn[1] + turn[2] * turn[2] + turn[3] * turn[3];
    V n = 1.5f - 0.5f * square;
    for (int i = 0; i < 4; i++) q[i] = turn[i] * n;
}

struct work { struct body body; float *q, *w; long bodies, steps, first, last; float h; };

static void *run(void *argument) {
    struct work *work = argument;
    for (long block = work->first; block < work->last; block++) {
        float *q_at = work->q + block * LANES, *w_at = work->w + block * LANES;
        V q[4], w[3];
        for (int i = 0; i < 4; i++) __builtin_memcpy(&q[i], q_at + i * work->bodies, sizeof(V));
        for (int i = 0; i < 3; i++) __builtin_memcpy(&w[i], w_at + i * work->bodies, sizeof(V));
        for (long k = 0; k < work->steps; k++) step(&work->body, q, w, work->h);
        for (int i = 0; i < 4; i++) __builtin_memcpy(q_at + i * work->bodies, &q[i], sizeof(V));
        for (int i = 0; i < 3; i++) __builtin_memcpy(w_at + i * work->bodies, &w[i], sizeof(V));
    }
    return 0;
}

/* q (4, bodies) and w (3, bodies) in place; bodies a multiple of 16, threads at most 64. */
void rollout(const float *inertia, const float *inverse, const float *gains, float *q, float *w,
             long bodies, long steps, float h, long threads) {
    pthread_t thread[64];
    struct work work[64];
    struct body body = {inertia, inverse, gains};
    long blocks = bodies / LANES;
    if (threads > blocks) threads = blocks;
    for (long n = 0; n < threads; n++) {
        long first = blocks * n / threads, last = blocks * (n + 1) / threads;
        work[n] = (struct work){body, q, w, bodies, steps, first, last, h};
        if (n) pthread_create(&thread[n], 0, run, &work[n]);
    }
    run(&work[0]);
    for (long n = 1; n < threads; n++) pthread_join(thread[n], 0);
}

enum { CHAINS = 12 }; /* two more vectors fit into the 16 registers of AVX2 */
const long numbers = CHAINS * LANES; /* of a round and thread */

struct chains { long rounds; float by, plus, sum; };

static void *run_chains(void *argument) { /* independent chains x = x y + z */
    struct chains *work = argument;
    long rounds = work->rounds;
    V x[CHAINS], y = all(work->by), z = all(work->plus), sum = {};
    for (int i = 0; i < CHAINS; i++) x[i] = all(i);
    for (long n = 0; n < rounds; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * y + z;
    }
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    work->sum = sum[0];
    return 0;
}

/* Multiplications with addition of LANES numbers, CHAINS a round and thread; at most 64 threads. */
void peak(long rounds, long threads) {
    pthread_t thread[64];
    struct chains work[64];
    for (long n = 0; n < threads; n++) {
        work[n] = (struct chains){rounds, 0.999f, 0.001f, 0.0f};
        if (n) pthread_create(&thread[n], 0, run_chains, &work[n]);
    }
    run_chains(&work[0]);
    for (long n = 1; n < threads; n++) pthread_join(thread[n], 0);
}
