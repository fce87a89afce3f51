//go:build !amd64

package main

import (
	"errors"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// report has no exit device to write to on this architecture.
func report(boot.Status) error {
	return errors.New("the matrix runs x86-64 guests only")
}
