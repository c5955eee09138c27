# For CMake's side of tests/packaging/apple.rs: a Mac to build for, with a compiler that is taken on trust, because no Mac's can be had.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_OSX_SYSROOT /)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER cc)
set(CMAKE_CXX_COMPILER c++)
set(CMAKE_C_COMPILER_FORCED TRUE)
set(CMAKE_CXX_COMPILER_FORCED TRUE)
set(CMAKE_HAVE_LIBC_PTHREAD TRUE) # asked by linking a program
set(CMAKE_SIZEOF_VOID_P 8)
