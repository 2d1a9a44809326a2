#!/bin/sh
# Checks that the libraries load under glibc 2.31's own loader.
# usage: gate.sh PACKAGE_CACHE LIBRARY...
set -eu
here=$(dirname "$0")
cache=$1
shift

old=$("$here/fetch.sh" "$cache" bullseye main libc6) || {
	echo "gate: glibc 2.31 could not be fetched: loading under it was NOT tested"
	exit 0
}
cat >"$cache/loader.c" <<'C'
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>
extern void* dlopen_old(const char*, int);
__asm__(".symver dlopen_old,dlopen@GLIBC_2.2.5");
extern char* dlerror_old(void);
__asm__(".symver dlerror_old,dlerror@GLIBC_2.2.5");
int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (!dlopen_old(argv[i], RTLD_NOW)) {
      fprintf(stderr, "%s\n", dlerror_old());
      return 1;
    }
  }
  printf("gate: loaded %d libraries under glibc %s\n", argc - 1, gnu_get_libc_version());
  return 0;
}
C
# The program's own start-up code must not ask for a newer libc either.
gcc -nostartfiles -Wl,--no-as-needed "$cache/loader.c" -x assembler - -o "$cache/loader" -l:libdl.so.2 -lc <<'S'
	.globl _start
	.type _start, @function
_start:
	xorl %ebp, %ebp
	movq (%rsp), %rdi
	leaq 8(%rsp), %rsi
	andq $-16, %rsp
	call main@PLT
	movl %eax, %edi
	call exit@PLT
	.section .note.GNU-stack,"",@progbits
S
dir=$(dirname "$(find "$old" -name 'ld-linux-x86-64.so.2' | head -1)")
libs=$(dirname "$(find "$old" -name 'libc.so.6' | head -1)")
"$dir/ld-linux-x86-64.so.2" --library-path "$libs" "$cache/loader" "$@"
