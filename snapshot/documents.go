package snapshot

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteDocuments writes the files that a snapshot has beside its trace into dir, which has
// the trace already: as the daemon does, for a copy of a snapshot that says something
// else. It replaces no file.
func WriteDocuments(ctx context.Context, dir string, meta *Meta, names *Names, why *Explanation) error {
	sums := newChecksums(func(string) {})
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	defer root.Close() //nolint:errcheck // only read from
	err = fs.WalkDir(root.FS(), TraceDir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(sums.file(name), contextReader{ctx, f})
		return err
	})
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	meta.Checksums = SumsFile
	return writeDocuments(dir, meta, names, why, sums)
}

// writeDocuments writes the files beside the trace, whose checksums are in sums.
func writeDocuments(dir string, meta *Meta, names *Names, why *Explanation, sums *checksums) error {
	for _, file := range []struct {
		name string
		fill func(io.Writer) error
	}{
		{ExplainTextFile, func(w io.Writer) error { return writeText(w, meta, why) }},
		{ExplainJSONFile, func(w io.Writer) error { return writeJSON(w, why.JSON) }},
		{TasksFile, func(w io.Writer) error { return writeJSON(w, names) }},
		{FoldedFile, func(w io.Writer) error { return writeFolded(w, meta.Outliers) }},
		{WorthFile, func(w io.Writer) error { return writeJSON(w, worthJSON{worthVersion, worthOf(meta)}) }},
		{MetaFile, func(w io.Writer) error { return writeJSON(w, meta) }},
	} {
		if err := writeFile(filepath.Join(dir, file.name), sums.file(file.name), file.fill); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(dir, SumsFile), io.Discard, sums.write)
}
