package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"syscall"

	"github.com/tailcam/tailcam/internal/linux"
)

// place is where processes run: what their commands begin with, or nil for anywhere.
type place []string

// apart are the first and the last CPU that this may use.
func apart() (first, last place, err error) {
	list, err := linux.AllowedCPUs()
	if err != nil {
		return nil, nil, err
	}
	if len(list) < 2 {
		return nil, nil, errors.New("-pin needs two CPUs")
	}
	on := func(cpu int) place { return place{"taskset", "--cpu-list", strconv.Itoa(cpu)} }
	return on(list[0]), on(list[len(list)-1]), nil
}

func (p place) command(name string, args []string) (string, []string) {
	if len(p) == 0 {
		return name, args
	}
	return p[0], slices.Concat(p[1:], []string{name}, args)
}

func (p place) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	name, args = p.command(name, args)
	return output(ctx, name, args...)
}

func (p place) serve(ctx context.Context, as *syscall.Credential, ready func(s *server) error, name string, args ...string) (*server, error) {
	name, args = p.command(name, args)
	return serve(ctx, as, ready, name, args...)
}
