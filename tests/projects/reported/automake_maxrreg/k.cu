// Makefile.am limits its registers.
__global__ void k(double *p, const double *q) {
    double a[40];
    for (int i = 0; i < 40; i++) a[i] = q[threadIdx.x + i * 64];
    for (int r = 0; r < 7; r++)
        for (int i = 0; i < 40; i++) a[i] += a[(i * 7 + r) % 40] * q[r];
    for (int i = 0; i < 40; i++) p[threadIdx.x + i * 64] = a[i];
}
