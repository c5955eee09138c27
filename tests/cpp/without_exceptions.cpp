// All scenarios that need no exceptions in one translation unit, which is compiled with -fno-exceptions -fno-rtti.
#include "main.cpp"
#include "results.cpp"
