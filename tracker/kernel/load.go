package kernel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/tracker/kinds"
)

// newCollection loads spec with the maps of kept. A program that only the recorder wants and that
// this kernel's verifier refuses is left out and noted: what it would record is
// not worth all the rest.
func newCollection(spec *ebpf.CollectionSpec, kept map[string]*ebpf.Map, unrecorded map[string]error) (*ebpf.Collection, error) {
	inlineConstants(spec)
	for {
		objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: kept})
		var refused *ebpf.VerifierError
		if err == nil || !errors.As(err, &refused) {
			return objects, err
		}
		h := refusedHook(spec, err)
		if h == nil {
			return nil, fmt.Errorf("the kernel's verifier refused tailcam's programs: %w\n%+v", err, refused) //nolint:errorlint // the same error again: its log
		}
		unrecorded[h.Site()] = fmt.Errorf("the kernel's verifier refused its program: %w", err)
		delete(spec.Programs, h.Program)
	}
}

// refusedHook finds the hook of the recorder whose program an error is about;
// nil: it is about another one. The library names it only in the text.
func refusedHook(spec *ebpf.CollectionSpec, err error) *kinds.Hook {
	for i := range kinds.RecorderHooks {
		h := &kinds.RecorderHooks[i]
		if spec.Programs[h.Program] != nil && strings.HasPrefix(err.Error(), "program "+h.Program+":") {
			return h
		}
	}
	return nil
}
