package tracker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// newCollection loads spec. A program that only the recorder wants and that
// this kernel's verifier refuses is left out and noted: what it would record is
// not worth all the rest.
func newCollection(spec *ebpf.CollectionSpec, unrecorded map[string]error) (*ebpf.Collection, error) {
	for {
		objects, err := ebpf.NewCollection(spec)
		var refused *ebpf.VerifierError
		if err == nil || !errors.As(err, &refused) {
			return objects, err
		}
		h := refusedHook(spec, err)
		if h == nil {
			return nil, fmt.Errorf("the kernel's verifier refused tailcam's programs: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
		}
		unrecorded[h.site()] = fmt.Errorf("the kernel's verifier refused its program: %w", err)
		delete(spec.Programs, h.program)
	}
}

// refusedHook finds the hook of the recorder whose program an error is about;
// nil: it is about another one. The library names it only in the text.
func refusedHook(spec *ebpf.CollectionSpec, err error) *hook {
	for i := range recorderHooks {
		h := &recorderHooks[i]
		if spec.Programs[h.program] != nil && strings.HasPrefix(err.Error(), "program "+h.program+":") {
			return h
		}
	}
	return nil
}
