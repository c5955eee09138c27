/* For wine 8, which has no bcryptprimitives.dll, where Rust's std has its random bytes from: those of RtlGenRandom. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG n);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T n)
{
    return SystemFunction036(bytes, (ULONG)n);
}
