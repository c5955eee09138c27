/* Returns the thread pointer on ARM, as zig's own functions and glibc's libc_nonshared.a do. On ARMv7 Linux keeps it in TPIDRURO.
   No other register may change (Run-time ABI for the Arm Architecture, 5.3.5). */
    .syntax unified
    .arm
    .text
    .global __aeabi_read_tp
    .hidden __aeabi_read_tp
    .type __aeabi_read_tp, %function
__aeabi_read_tp:
    mrc p15, 0, r0, c13, c0, 3
    bx lr
    .size __aeabi_read_tp, . - __aeabi_read_tp
    .section .note.GNU-stack, "", %progbits
