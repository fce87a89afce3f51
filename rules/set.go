package rules

import (
	"bytes"
	"path/filepath"
	"slices"
)

// Set is what a list of rule files holds together, as read at one time.
type Set struct {
	Rules   []Rule
	Actions []SharedAction
	Files   []File
	// Lost are errors of paths that have no file, such as a missing directory.
	Lost Errors

	sources []source // what Rules are made of
}

// File is the outcome of one rule file.
type File struct {
	Path     string
	Replaces []string // files of the same name in earlier directories
	Rules    []string // names of those in use
	Errors   Errors   // why its text is not used; nil: it is
	Kept     bool     // with Errors: its rules are those of its earlier text; else it has none
}

// Errors returns all errors: of paths, then of files.
func (s *Set) Errors() Errors {
	all := slices.Clone(s.Lost)
	for i := range s.Files {
		all = append(all, s.Files[i].Errors...)
	}
	return all
}

// LoadSet reads rule files as Load does. Where before is not nil, a file with an error
// keeps the rules that it had there, and so do the files of a path that cannot be read.
// A new file with an error has no rules.
func LoadSet(before *Set, paths []string, machine Machine) *Set {
	s := &Set{}
	list, errs := findFiles(paths)
	s.Lost = errs
	var sources []source
	for _, f := range list {
		file := File{Path: f.path, Replaces: f.replaces}
		data, errs := readFile(f.path)
		old := before.source(f.path)
		switch {
		case len(errs) == 0:
			sources = append(sources, source{f.path, data, machine, old == nil || !bytes.Equal(data, old.data)})
		case old != nil:
			sources = append(sources, source{f.path, old.data, checked{machine}, false})
		}
		file.Errors, file.Kept = errs, len(errs) > 0 && old != nil
		s.Files = append(s.Files, file)
	}
	for _, e := range errs {
		sources = append(sources, s.keepPath(before, e.Pos.File, machine)...)
	}
	s.settle(before, sources)
	return s
}

// source returns the text of a file; nil: the set has none.
func (s *Set) source(file string) *source {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.sources, func(o source) bool { return o.file == file })
	if i < 0 {
		return nil
	}
	return &s.sources[i]
}

// keepPath keeps the files of a path that cannot be read, which may be one of them.
func (s *Set) keepPath(before *Set, path string, machine Machine) (kept []source) {
	if before == nil {
		return nil
	}
	for _, old := range before.sources {
		listed := slices.ContainsFunc(s.Files, func(f File) bool { return f.Path == old.file })
		if listed || old.file != path && filepath.Dir(old.file) != path {
			continue
		}
		s.Files = append(s.Files, File{Path: old.file, Kept: true, Errors: Errors{{
			Pos: Position{File: old.file}, Msg: "cannot be read any more: see " + path,
		}}})
		kept = append(kept, source{old.file, old.data, checked{machine}, false})
	}
	return kept
}

// settle reads the sources. With a set before, it puts the earlier text, or nothing, in
// the place of each file that has an error, until no error is left.
func (s *Set) settle(before *Set, sources []source) {
	for {
		got, errs := readSources(sources)
		if !anyErrors(errs) {
			s.Rules, s.Actions, s.sources = got.rules, got.actions, sources
			break
		}
		var next []source
		for _, src := range sources {
			wrong, f := errs[src.file], s.file(src.file)
			if len(wrong) == 0 {
				next = append(next, src)
				continue
			}
			if f.Errors == nil {
				f.Errors = wrong
			}
			old := before.source(src.file)
			if f.Kept = old != nil && !f.Kept; f.Kept {
				next = append(next, source{old.file, old.data, checked{src.machine}, false})
			}
		}
		if before == nil {
			return // the errors that follow from these would only confuse
		}
		sources = next
	}
	for i := range s.Rules {
		f := s.file(s.Rules[i].Pos.File)
		f.Rules = append(f.Rules, s.Rules[i].Name)
	}
}

func anyErrors(errs map[string]Errors) bool {
	for _, e := range errs {
		if len(e) > 0 {
			return true
		}
	}
	return false
}

func (s *Set) file(path string) *File {
	i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == path })
	return &s.Files[i]
}

// checked is a machine for rules that were valid on it before: users and programs that
// have gone since then must not take their rules along.
type checked struct{ Machine }

// LookupUser implements Machine.
func (c checked) LookupUser(name string) (uint32, error) {
	uid, err := c.Machine.LookupUser(name)
	if err != nil {
		return 0, nil //nolint:nilerr // see checked
	}
	return uid, nil
}

// CheckExecutable implements Machine.
func (checked) CheckExecutable(string) error { return nil }
