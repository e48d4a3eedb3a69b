/* What a GPU can do: the rollout of benchmarks/rollout.py (rkmk4, a quaternion law with two gains)
   by hand in CUDA, one thread a body, in float32. limit_cuda.py compiles it and checks its results.
   With the macros COS, SINC and POLES, the library's coefficients, its accuracy is the library's;
   without them the series are as short as float32 allows for the angles of small steps. */

#include <cuda_runtime.h>

struct Body { float inertia[9], inverse[9], stiffness, damping, h; };
struct Vector { float x, y, z; };
struct Quaternion { float w; Vector v; };

#define HERE __device__ __forceinline__

HERE Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
HERE Vector operator*(float s, Vector a) { return {s * a.x, s * a.y, s * a.z}; }
HERE float dot(Vector a, Vector b) { return fmaf(a.x, b.x, fmaf(a.y, b.y, a.z * b.z)); }
HERE Vector cross(Vector a, Vector b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
HERE Vector times(const float (&m)[9], Vector v) {
    return {dot({m[0], m[1], m[2]}, v), dot({m[3], m[4], m[5]}, v), dot({m[6], m[7], m[8]}, v)};
}

template <int N> HERE float polynomial(const float (&c)[N], float s) {
    float sum = c[N - 1];
#pragma unroll
    for (int n = N - 2; n >= 0; n--) sum = fmaf(sum, s, c[n]);
    return sum;
}

#define PI 3.14159265358979f
#define FAR 4.0f /* of s, the square of half the angle */
#ifndef COS /* powers of s of the cosine and of sin(x)/x: to 2^-24 below FAR */
#define COS {1, -1.f / 2, 1.f / 24, -1.f / 720, 1.f / 40320, -1.f / 3628800, 1.f / 479001600, \
             -1.f / 87178291200.f}
#define SINC {1, -1.f / 6, 1.f / 120, -1.f / 5040, 1.f / 362880, -1.f / 39916800, \
              1.f / 6227020800.f}
#endif

HERE void series(float s, float &cosine, float &sinc) {
    constexpr float c[] = COS, d[] = SINC;
    cosine = polynomial(c, s);
    sinc = polynomial(d, s);
}

HERE void half_angle(float s, float &cosine, float &sinc) {
    if (s < FAR) return series(s, cosine, sinc);
    float x = sqrtf(s), k = rintf(x * (1 / PI)), left = fmaf(k, -PI, x);
    float sign = 1 - 2 * (k - 2 * floorf(0.5f * k));
    series(left * left, cosine, sinc);
    cosine *= sign;
    sinc *= sign * left / x;
}

HERE Quaternion turned(Quaternion q, Vector half) { /* q exp(2 half) */
    float cosine, sinc;
    half_angle(dot(half, half), cosine, sinc);
    Vector b = sinc * half;
    return {q.w * cosine - dot(q.v, b), q.w * b + (cosine * q.v + cross(q.v, b))};
}

HERE float dexpinv_factor(float s) { /* (1 - x cot x) / (4 s) with s = x^2 */
#ifdef POLES /* the library's: two poles of the cotangent, and a series of the others */
    constexpr float poles[] = POLES;
    const float p = PI * PI;
    s = s < p ? s : nanf("");
    float two = fmaf(s, -4.0f, 10 * p) / ((p - s) * (4 * p - s));
    return 0.25f * (two + polynomial(poles, s));
#else /* Taylor up to an angle of 1.6 rad of a stage */
    constexpr float near[] = {1.f / 12, 1.f / 180, 1.f / 1890, 1.f / 18900, 1.f / 187110};
    if (s < 0.64f) return polynomial(near, s);
    float x = sqrtf(s);
    return (1 - x / tanf(x)) / (4 * s);
#endif
}

HERE Vector dexpinv(Vector half, Vector w) {
    Vector once = cross(half, w); /* half of u x w */
    return w + once + 4 * dexpinv_factor(dot(half, half)) * cross(half, once);
}

HERE Vector accelerated(const Body &body, Quaternion q, Vector w) {
    float push = -2 * (q.w < 0 ? -body.stiffness : body.stiffness);
    Vector tau = push * q.v + (-body.damping) * w, gyroscopic = cross(times(body.inertia, w), w);
    return times(body.inverse, tau + gyroscopic);
}

template <int BLOCK> __global__ __launch_bounds__(BLOCK)
void run(const __grid_constant__ Body body, const float *__restrict__ q0,
         const float *__restrict__ w0, float *__restrict__ q1, float *__restrict__ w1, int n,
         int steps) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    Quaternion q = {q0[i], {q0[n + i], q0[2 * n + i], q0[3 * n + i]}};
    Vector w = {w0[i], w0[n + i], w0[2 * n + i]};
    float h = body.h, quarter = h / 4, sixth = h / 6, third = h / 3, twelfth = h / 12;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        Vector a1 = accelerated(body, q, w), half = quarter * w, w2 = w + 2 * quarter * a1;
        Vector a2 = accelerated(body, turned(q, half), w2), k2 = dexpinv(half, w2);
        half = quarter * k2;
        Vector w3 = w + 2 * quarter * a2;
        Vector a3 = accelerated(body, turned(q, half), w3), k3 = dexpinv(half, w3);
        half = 2 * quarter * k3;
        Vector w4 = w + h * a3;
        Vector a4 = accelerated(body, turned(q, half), w4), k4 = dexpinv(half, w4);
        half = twelfth * (w + k4) + 2 * twelfth * (k2 + k3);
        w = w + sixth * (a1 + a4) + third * (a2 + a3);
        q = turned(q, half);
        float unit = fmaf(-0.5f, fmaf(q.w, q.w, dot(q.v, q.v)), 1.5f);
        q = {unit * q.w, unit * q.v};
    }
    q1[i] = q.w, q1[n + i] = q.v.x, q1[2 * n + i] = q.v.y, q1[3 * n + i] = q.v.z;
    w1[i] = w.x, w1[n + i] = w.y, w1[2 * n + i] = w.z;
}

static float *memory[4]; /* q and omega, before and after */
static int bodies;

extern "C" int release() {
    for (float *&at : memory) cudaFree(at), at = nullptr;
    return cudaGetLastError();
}

extern "C" int load(const float *q, const float *w, int n) { /* (4, n) and (3, n), to the device */
    bodies = n;
    for (int k = 0; k < 4; k++) cudaMalloc(&memory[k], (k % 2 ? 3 : 4) * sizeof(float) * n);
    cudaMemcpy(memory[0], q, 4 * sizeof(float) * n, cudaMemcpyHostToDevice);
    cudaMemcpy(memory[1], w, 3 * sizeof(float) * n, cudaMemcpyHostToDevice);
    return cudaGetLastError();
}

template <int BLOCK> static void launch(const Body &body, int steps) {
    run<BLOCK><<<(bodies + BLOCK - 1) / BLOCK, BLOCK>>>(body, memory[0], memory[1], memory[2],
                                                        memory[3], bodies, steps);
}

/* Run with 32, 64, 128 or 256 threads a block, and wait; the kernel's time by events. */
extern "C" int rollout(const Body *body, int steps, int block, float *milliseconds) {
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    cudaEventRecord(begin);
    if (block == 32) launch<32>(*body, steps);
    else if (block == 64) launch<64>(*body, steps);
    else if (block == 128) launch<128>(*body, steps);
    else launch<256>(*body, steps);
    cudaEventRecord(end), cudaEventSynchronize(end);
    cudaEventElapsedTime(milliseconds, begin, end);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return cudaGetLastError();
}

extern "C" int results(float *q, float *w) {
    cudaMemcpy(q, memory[2], 4 * sizeof(float) * bodies, cudaMemcpyDeviceToHost);
    cudaMemcpy(w, memory[3], 3 * sizeof(float) * bodies, cudaMemcpyDeviceToHost);
    return cudaGetLastError();
}
