package main

import (
	"context"
	"errors"
	"strconv"
	"syscall"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/test/support/cpus"
)

// place is the CPU that processes are kept to, or anywhere.
type place struct {
	cpu   int
	fixed bool
}

// apart are the first and the last CPU that this may use.
func apart() (first, last place, err error) {
	list, err := linux.AllowedCPUs()
	if err != nil {
		return place{}, place{}, err
	}
	if len(list) < 2 {
		return place{}, place{}, errors.New("-pin needs two CPUs")
	}
	return place{list[0], true}, place{list[len(list)-1], true}, nil
}

func (p place) command(name string, args []string) (string, []string) {
	if !p.fixed {
		return name, args
	}
	return "taskset", append([]string{"--cpu-list", strconv.Itoa(p.cpu), name}, args...)
}

// keep keeps the calling thread there.
func (p place) keep() error {
	if !p.fixed {
		return nil
	}
	return cpus.Keep(p.cpu)
}

func (p place) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	name, args = p.command(name, args)
	return output(ctx, name, args...)
}

func (p place) serve(ctx context.Context, as *syscall.Credential, ready func(s *server) error, name string, args ...string) (*server, error) {
	name, args = p.command(name, args)
	return serve(ctx, as, ready, name, args...)
}
