package bugtool

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/redact"
)

// maxFile is how many bytes of a file are kept. Of logs the end matters: their collectors
// keep that.
const maxFile = 1 << 20

// root is the directory in the archive that has all files.
const root = "tailcam-bugtool/"

// manifest is what was collected, and what was not.
type manifest struct {
	now     time.Time
	release string
	path    string
	notes   []string
	entries []entry
	missed  [][2]string // what, and why
}

// entry is a file of the archive.
type entry struct {
	name, what string
	data       []byte
	removed    int // secrets
	cut        bool
}

// take takes the files of an item, without their secrets.
func (m *manifest) take(i *item, files []file, err error, r *redact.Redactor) {
	if err != nil {
		m.miss(i.name, err)
	} else if len(files) == 0 {
		m.miss(i.name, errNothing{"there is none"})
	}
	for _, f := range files {
		r.Removed()
		data, err := f.data(r)
		if err != nil {
			m.miss(f.name, err)
			continue
		}
		what := i.what
		if f.note != "" {
			what = f.note
		}
		e := entry{name: f.name, what: what, removed: r.Removed(), cut: len(data) > maxFile}
		e.data = data[:min(len(data), maxFile)]
		m.entries = append(m.entries, e)
	}
}

func (m *manifest) miss(what string, err error) {
	m.missed = append(m.missed, [2]string{what, err.Error()})
}

// write writes the archive: the manifest first.
func (m *manifest) write(f *os.File, r *redact.Redactor) (size int64, err error) {
	zip := gzip.NewWriter(f)
	out := tar.NewWriter(zip)
	add := func(name string, data []byte) {
		// What encoding may have made of it is looked at, too.
		data = []byte(r.Known(string(data)))
		err = errors.Join(err, out.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: root + r.Known(name), Size: int64(len(data)), Mode: 0o600, ModTime: m.now,
		}))
		if err == nil {
			_, err = out.Write(data)
		}
	}
	add("MANIFEST", []byte(r.Text(m.String())))
	for i := range m.entries {
		add(m.entries[i].name, m.entries[i].data)
	}
	if err := errors.Join(err, out.Close(), zip.Close(), f.Sync()); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekEnd)
}

// String is the text of the manifest.
func (m *manifest) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n\nLook into each file before you send this.\n\nFILES\n",
		m.release, m.now.UTC().Format(time.RFC3339))
	for i := range m.entries {
		e := &m.entries[i]
		fmt.Fprintf(&b, "%s, %d bytes: %s", e.name, len(e.data), e.what)
		if e.removed > 0 {
			fmt.Fprintf(&b, "; redactions: %d", e.removed)
		}
		if e.cut {
			fmt.Fprintf(&b, "; cut after %d bytes", maxFile)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nNOT COLLECTED\n")
	for _, miss := range m.missed {
		fmt.Fprintf(&b, "%s: %s\n", miss[0], strings.ReplaceAll(strings.TrimSpace(miss[1]), "\n", "; "))
	}
	b.WriteString("\nREDACTED\n" + redacted)
	for _, note := range m.notes {
		b.WriteString(note + "\n")
	}
	return b.String()
}

// redacted is what is removed from all files, in words that redaction leaves alone.
const redacted = `Values of otlp.headers and of settings whose names say that they are secret, wherever they occur.
What has the form of a credential, a private key or a hash of one. Names in URLs and of home directories.
Comments of configuration and rule files, and arguments of programs that rules run.
Not in any file: outliers, snapshots, command lines and names of other processes, the name of this host.
Values of fewer than 4 bytes are removed where they are set, and not looked for elsewhere.
`
