package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// DefaultPaths are the directories of the shipped and of the operator's rule files. Any
// of them may be missing or empty, if the other has files.
var DefaultPaths = []string{"/usr/lib/tailcam/rules.d", "/etc/tailcam/rules.d"}

// Load reads rule files, and the *.yaml and *.yml files of directories, sorted by
// name. A file replaces those of the same name in earlier directories. It returns all
// rules in the order of the files, or no rules and Errors with every error of every
// file.
func Load(paths []string, machine Machine) ([]Rule, error) {
	set := LoadSet(nil, paths, machine)
	if errs := set.Errors(); len(errs) > 0 {
		return nil, errs
	}
	return set.Rules, nil
}

// Parse is Load for the contents of one file; file names it in errors.
func Parse(file string, data []byte, machine Machine) ([]Rule, error) {
	got, errs := readSources([]source{{file: file, data: data, machine: machine}})
	if errs := errs[file]; len(errs) > 0 {
		return nil, errs
	}
	return got.rules, nil
}

func newReader(machine Machine) *reader {
	return &reader{
		machine:  machine,
		from:     make(map[*yaml.Node]string),
		names:    make(map[string]Position),
		lists:    make(map[string]int),
		verdicts: make(map[string]map[string]bool),
	}
}

// found is a rule file.
type found struct {
	path     string
	info     os.FileInfo
	layer    string   // its directory, if that was given; empty: the file was
	replaces []string // files of the same name in earlier directories
}

// finder finds rule files.
type finder struct {
	files []found
	errs  Errors
}

func (f *finder) fail(path, msg, allowed string) {
	f.errs = append(f.errs, Error{Pos: Position{File: path}, Msg: msg, Allowed: allowed})
}

// findFiles replaces directories by their rule files. Each file is listed once.
func findFiles(paths []string) ([]found, Errors) {
	var f finder
	if len(paths) == 0 {
		f.fail("rules", "no rule files given", "files, and directories of *.yaml or *.yml files")
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && slices.Contains(DefaultPaths, path):
		case err != nil:
			f.fail(path, "cannot open: "+reason(err), "")
		case info.IsDir():
			f.addDir(path)
		default:
			f.add(found{path: path, info: info})
		}
	}
	if len(f.files) == 0 && len(f.errs) == 0 {
		f.fail(strings.Join(paths, ", "), "no rule files", "at least one *.yaml or *.yml file")
	}
	if len(f.files) > maxFiles {
		f.fail(f.files[maxFiles].path, "too many rule files", fmt.Sprintf("at most %d", maxFiles))
	}
	return f.files[:min(len(f.files), maxFiles)], f.errs
}

func (f *finder) add(file found) {
	if len(f.files) > maxFiles {
		return // there is an error already
	}
	if slices.ContainsFunc(f.files, func(o found) bool { return os.SameFile(o.info, file.info) }) {
		return
	}
	if file.layer != "" {
		f.files = slices.DeleteFunc(f.files, func(o found) bool {
			same := o.layer != "" && o.layer != file.layer && filepath.Base(o.path) == filepath.Base(file.path)
			if same {
				file.replaces = append(append(file.replaces, o.replaces...), o.path)
			}
			return same
		})
	}
	f.files = append(f.files, file)
}

func (f *finder) addDir(dir string) {
	entries, err := readDir(dir)
	if err != nil {
		f.fail(dir, "cannot read: "+reason(err), "")
		return
	}
	if len(entries) > maxEntries {
		f.fail(dir, "too many files in this directory", fmt.Sprintf("at most %d", maxEntries))
		return
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	any := slices.Contains(DefaultPaths, dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(e.Name())) {
			continue // editors leave hidden files behind
		}
		any = true
		file := filepath.Join(dir, e.Name())
		info, err := os.Stat(file)
		switch {
		case err != nil:
			f.fail(file, "cannot open: "+reason(err), "")
		case !info.Mode().IsRegular():
			f.fail(file, "is not a regular file", "regular files named *.yaml or *.yml")
		default:
			f.add(found{path: file, info: info, layer: dir})
		}
	}
	if !any {
		f.fail(dir, "no rule files in this directory", "at least one *.yaml or *.yml file")
	}
}

// readDir stops after one entry more than is allowed.
func readDir(path string) ([]os.DirEntry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}
