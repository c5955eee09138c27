/* A bcryptprimitives.dll for wine 8, which has none. Rust's std gets its random bytes from it;
 * they come from RtlGenRandom. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG n);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T n)
{
    return SystemFunction036(bytes, (ULONG)n);
}
