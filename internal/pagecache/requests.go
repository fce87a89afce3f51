package pagecache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tailcam/tailcam/bpf/abi"
)

// sharedMaps are those of bpf/accounts/account.h.
var sharedMaps = []string{"activity_owners", "activity_processes", "activity_shared", "activity_accounts"}

// OpenMaps opens the maps of a daemon that tell which task works for which request, by their ids.
// Needs CAP_SYS_ADMIN. CloseMaps closes them.
func OpenMaps(ids map[string]uint32) (map[string]*ebpf.Map, error) {
	maps := map[string]*ebpf.Map{}
	for _, name := range sharedMaps {
		id, ok := ids[name]
		if !ok {
			return nil, errors.Join(fmt.Errorf("the daemon tells no map %s", name), CloseMaps(maps))
		}
		m, err := ebpf.NewMapFromID(ebpf.MapID(id))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the daemon's map %s: %w", name, err), CloseMaps(maps))
		}
		maps[name] = m
	}
	return maps, nil
}

// CloseMaps closes what OpenMaps has opened.
func CloseMaps(maps map[string]*ebpf.Map) error {
	var errs []error
	for _, m := range maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// share has the programs use the maps of activities, if there are some.
func (w *Watch) share(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	if w.opts.Activities == nil {
		return nil, nil
	}
	replace := map[string]*ebpf.Map{}
	for _, name := range sharedMaps {
		m := w.opts.Activities[name]
		if m == nil {
			return nil, fmt.Errorf("no map %s", name)
		}
		spec.Maps[name].MaxEntries = m.MaxEntries()
		replace[name] = m
	}
	if err := spec.Variables["activities_open"].Set(uint32(1)); err != nil {
		return nil, fmt.Errorf("have the programs look for requests: %w", err)
	}
	return replace, nil
}

// Request is a request that pages were removed for: the thread that removed them carried its token.
// Pages is between it and the sum of it and ErrorPages.
type Request struct {
	Token string `json:"token"` // as the daemon's activities have it
	// Name, Text and TraceID are what its program calls it: any bytes. "": not known.
	Name       string `json:"name"`
	Text       string `json:"text"`
	TraceID    string `json:"trace_id"`
	Pages      uint64 `json:"pages"`
	ErrorPages uint64 `json:"error_pages"`
}

// requestsBy returns what pages were removed for, by who removed them, the most first.
func (w *Watch) requestsBy() map[abi.PagecacheRemoval][]Request {
	list := map[abi.PagecacheRemoval][]Request{}
	for _, e := range w.requests.order {
		who, by := e.key, e.key.By
		who.By = abi.ActivityReference{}
		list[who] = append(list[who], Request{
			Token: fmt.Sprintf("%d.%d.%d", by.Serial, by.Token, by.Generation), Pages: e.weight - e.excess, ErrorPages: e.excess,
		})
	}
	for _, of := range list {
		slices.SortFunc(of, func(a, b Request) int { return cmp.Or(cmp.Compare(b.Pages, a.Pages), cmp.Compare(a.Token, b.Token)) })
	}
	return list
}
