package stress

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package stress -no-global-types -type work Stress stress.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package stress -no-global-types Broken stress.bpf.c -- -DBROKEN -O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
