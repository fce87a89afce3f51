package helper

import (
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/contexts/published"
	"github.com/tailcam/tailcam/internal/process"
)

// ContextKeys is like published.Keys, but of the names only those that are wanted: others are
// empty. It returns ErrRefused as Words does.
func (h *Helper) ContextKeys(pid int, wanted []string) ([]string, process.Image, error) {
	m, err := h.read(&request{kind: reqContextKeys, pid: pid, path: strings.Join(wanted, "\x00")})
	if err != nil {
		return nil, process.Image{}, err
	}
	if len(m.addrs) < 2 {
		return nil, process.Image{}, errMessage
	}
	names := append([]string{""}, wanted...)
	var keys []string
	for _, n := range m.addrs[2:] {
		if n >= uint64(len(names)) {
			return nil, process.Image{}, errMessage
		}
		keys = append(keys, names[n])
	}
	return keys, process.Image{StartCode: m.addrs[0], StartStack: m.addrs[1]}, nil
}

// contextKeys answers reqContextKeys: the program, and for each key which one of the wanted
// names it has, from 1 on; 0: none. So no text of the process's leaves the helper.
func contextKeys(q *request) ([]uint64, error) {
	keys, image, err := published.Keys(q.pid)
	if err != nil {
		return nil, err
	}
	wanted := strings.Split(q.path, "\x00")
	out := []uint64{image.StartCode, image.StartStack}
	for _, key := range keys {
		out = append(out, uint64(slices.Index(wanted, key)+1))
	}
	return out, nil
}
