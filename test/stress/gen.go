package stress

//go:generate go tool bpf2go -no-global-types -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package stress -type work -type account Stress stress.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -no-global-types -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package stress Broken stress.bpf.c -- -DBROKEN -O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
