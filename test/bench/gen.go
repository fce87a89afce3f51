package main

//go:generate go tool bpf2go -no-global-types -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package main Ring ring.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
