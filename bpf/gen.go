// Package bpf holds the kernel side: its C sources and the objects made from
// them. What it shares with Go is in package abi.
package bpf

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -type record -type record_type -type run_segment -type run_total -type outlier -type user_stack -type progress -type irq_extra -type glob_range -type conditions -type rule -type override -type glob -type set_key -type verdict_key -type rule_state -type ring_use -type span_old -type cpu_state -type record_ring -type release -type chain -type span_extra -type key_glob -type chain_stage -type scratch -type histogram -type histogram_rule -type question -type task_stack -type ratchet_call -type growth -type grow_message Tailcam tailcam.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package bpf -type pair_extra -type fetch -type pair_condition Pair pair.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3 -I. -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
