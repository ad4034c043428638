// The versions that functions have had since the first glibc of the architecture. Without them the linker takes the names
// of glibc 2.34, which moved pthread's functions, or of 2.27 and 2.29, which no longer set errno in logf, powf, exp, log
// and pow, and the library loads with no older one.
#pragma once

#include <pthread.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__x86_64__)
#define MVPRUNE_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define MVPRUNE_FIRST_GLIBC "GLIBC_2.17"
#endif
#define MVPRUNE_OLD_NAME(function) asm(".symver " #function ", " #function "@" MVPRUNE_FIRST_GLIBC)
MVPRUNE_OLD_NAME(pthread_create);
MVPRUNE_OLD_NAME(pthread_detach);
MVPRUNE_OLD_NAME(pthread_once);
MVPRUNE_OLD_NAME(pthread_key_create);
MVPRUNE_OLD_NAME(pthread_setspecific);
MVPRUNE_OLD_NAME(exp);
MVPRUNE_OLD_NAME(log);
MVPRUNE_OLD_NAME(logf);
MVPRUNE_OLD_NAME(pow);
MVPRUNE_OLD_NAME(powf);
#undef MVPRUNE_OLD_NAME
#undef MVPRUNE_FIRST_GLIBC
#endif
