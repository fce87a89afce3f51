// Package bpf holds the kernel side: its C sources and the objects made from
// them. What it shares with Go is in package abi.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Tailcam tailcam.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Pair pair.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Call call.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Coredump coredump.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Pagecache pagecache.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Activity activity.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Declared declared.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -no-global-types Contexts contexts.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
