// Package redacted copies a snapshot without the names in it, so that it can be shown to
// others: each name becomes a pseudonym, everywhere the same. Times, numbers, functions of
// the kernel and the names of its threads stay, so that the copy is explained as the
// original is.
//
// What is kept is listed; what this release does not know is replaced or left out.
package redacted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/internal/catalog"
	"github.com/tailcam/tailcam/internal/redact"
	"github.com/tailcam/tailcam/snapshot"
	"github.com/tailcam/tailcam/snapshot/trace"
)

// maxFile bounds a file that is read at once, in bytes.
const maxFile = 64 << 20

// Copy copies the snapshot in src to dst, which it creates, with pseudonyms for names of
// these kinds. It explains the copy anew. A damaged trace is an error that wraps
// trace.ErrDamaged. After an error, what was written remains.
func Copy(ctx context.Context, dst, src string, kinds []redact.Kind) (*redact.Summary, error) {
	meta, err := snapshot.ReadMeta(src)
	if err != nil {
		return nil, err
	}
	names, err := snapshot.ReadNames(src)
	if err != nil {
		return nil, err
	}
	c := &copier{p: redact.NewPseudonyms(kinds), kernel: map[string]bool{}, meta: meta}
	c.learn(names)
	tasks, err := read(filepath.Join(src, snapshot.TasksFile))
	if err != nil {
		return nil, err
	}
	described, err := read(filepath.Join(src, snapshot.MetaFile))
	if err != nil {
		return nil, err
	}
	c.p.Quietly(func() { // texts are written once all names are known
		_, _ = c.walk(tasks), c.walk(described)
	})
	if err := c.trace(ctx, dst, src); err != nil {
		return nil, err
	}
	names, meta = &snapshot.Names{}, &snapshot.Meta{}
	if err := errors.Join(convert(names, c.walk(tasks)), convert(meta, c.walk(described))); err != nil {
		return nil, err
	}
	names.Version = snapshot.NamesVersion // of the file that is written, also where there was none
	report, err := catalog.ExplainTrace(filepath.Join(dst, snapshot.TraceDir), meta, names)
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	why := catalog.Explanation(report)
	for i := range why.Outliers {
		meta.Outliers[i].Explained = why.Outliers[i].Explained
	}
	if err := snapshot.WriteDocuments(ctx, dst, meta, names, why); err != nil {
		return nil, err
	}
	s := c.p.Summary()
	s.FilesLeftOut, err = leftOut(dst, src)
	return s, err
}

type copier struct {
	p      *redact.Pseudonyms
	kernel map[string]bool // names of kernel threads
	meta   *snapshot.Meta  // of the original
}

// learn finds the names that stay, and those of users that only their numbers tell.
func (c *copier) learn(names *snapshot.Names) {
	for i := range names.Tasks {
		if t := &names.Tasks[i]; t.Kernel && !t.Exited {
			c.kernel[t.Comm] = true
			name, _, _ := strings.Cut(t.Comm, "-") // a worker's without its queue, as in the trace
			c.kernel[name] = true
		}
	}
	if host, err := os.Hostname(); err != nil || host != cmp.Or(c.meta.Host.Nodename, c.meta.Host.Name) {
		return
	}
	for i := range c.meta.Outliers {
		if uid := c.meta.Outliers[i].Task.UID; uid != 0 {
			if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
				c.p.Learn(redact.Users, u.Username)
			}
		}
	}
}

// trace copies the trace with other names.
func (c *copier) trace(ctx context.Context, dst, src string) error {
	from, err := snapshot.TracePath(src)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dst, 0o700); err != nil {
		return fmt.Errorf("redact: %w", err)
	}
	_, err = trace.Copy(ctx, filepath.Join(dst, snapshot.TraceDir), from, &trace.CopyOptions{Rename: func(kind trace.NameKind, name string) string {
		switch kind {
		case trace.TaskName:
			return c.command(name)
		case trace.FileName:
			return c.file(name)
		case trace.HostName:
			return c.p.Name(redact.Hosts, name)
		case trace.BootName:
			return c.boot(name)
		}
		return c.p.Text(name)
	}})
	if errors.Is(err, trace.ErrDamaged) {
		return fmt.Errorf("redact: %w: only an undamaged trace can be redacted", err)
	}
	return err
}

// read reads a JSON document. A file that is missing is empty.
func read(path string) (v any, err error) {
	data, err := snapshot.ReadDocument(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("redact: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("redact %s: %w", path, err)
	}
	return v, nil
}

// convert makes a document what it is the JSON of.
func convert(to, document any) error {
	data, err := json.Marshal(document)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		return fmt.Errorf("redact: %w", err)
	}
	return nil
}

// leftOut counts the files of src that dst has not.
func leftOut(dst, src string) (int, error) {
	n := 0
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(dst, name)); errors.Is(err, fs.ErrNotExist) {
			n++
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("redact: %w", err)
	}
	return n, nil
}

// ParseKinds parses a list of kinds; "all" is all of them, "" the usual ones.
func ParseKinds(list []string) ([]redact.Kind, error) {
	if len(list) == 0 {
		return redact.Usual, nil
	}
	var kinds []redact.Kind
	for _, name := range list {
		switch k := redact.Kind(name); {
		case name == "usual":
			kinds = append(kinds, redact.Usual...)
		case name == "all":
			kinds = append(kinds, redact.Kinds...)
		case slices.Contains(redact.Kinds, k):
			kinds = append(kinds, k)
		default:
			return nil, fmt.Errorf("unknown kind %q: must be usual, all, or some of %s", name, KindNames())
		}
	}
	return kinds, nil
}

// KindNames lists the kinds that ParseKinds takes.
func KindNames() string {
	names := make([]string, len(redact.Kinds))
	for i, k := range redact.Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}
