package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load reads rule files, and the *.yaml and *.yml files of directories, sorted by
// name. It returns all rules in the order of the files, or no rules and Errors with
// every error of every file.
func Load(paths []string, machine Machine) ([]Rule, error) {
	files, all := ruleFiles(paths)
	r := newReader(machine)
	var rules []Rule
	for _, file := range files {
		data, errs := readFile(file)
		if len(errs) == 0 {
			var got []Rule
			got, errs = r.parse(file, data)
			rules = append(rules, got...)
		}
		all = append(all, errs...)
	}
	if len(all) > 0 {
		return nil, all
	}
	return rules, nil
}

// Parse is Load for the contents of one file; file names it in errors.
func Parse(file string, data []byte, machine Machine) ([]Rule, error) {
	rules, errs := newReader(machine).parse(file, data)
	if len(errs) > 0 {
		return nil, errs
	}
	return rules, nil
}

func newReader(machine Machine) *reader {
	return &reader{
		machine:  machine,
		names:    make(map[string]Position),
		lists:    make(map[string]int),
		verdicts: make(map[string]map[string]bool),
	}
}

func (r *reader) parse(file string, data []byte) ([]Rule, Errors) {
	root, errs := ParseDocument(file, data)
	if len(errs) > 0 {
		return nil, errs
	}
	r.file, r.errs = file, nil
	rules := r.document(root)
	return rules, r.errs.tidy()
}

// ruleFiles replaces directories by their rule files. Each file is listed once.
func ruleFiles(paths []string) ([]string, Errors) {
	var errs Errors
	fail := func(path, msg, allowed string) {
		errs = append(errs, Error{Pos: Position{File: path}, Msg: msg, Allowed: allowed})
	}
	var files []string
	var seen []os.FileInfo
	add := func(file string, info os.FileInfo) {
		if len(files) > maxFiles {
			return // there is an error already
		}
		if slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			return
		}
		seen = append(seen, info)
		files = append(files, file)
	}
	if len(paths) == 0 {
		fail("rules", "no rule files given", "files, and directories of *.yaml or *.yml files")
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fail(path, "cannot open: "+reason(err), "")
			continue
		}
		if !info.IsDir() {
			add(path, info)
			continue
		}
		entries, err := readDir(path)
		if err != nil {
			fail(path, "cannot read: "+reason(err), "")
			continue
		}
		if len(entries) > maxEntries {
			fail(path, "too many files in this directory", fmt.Sprintf("at most %d", maxEntries))
			continue
		}
		slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
		found := false
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(e.Name())) {
				continue // editors leave hidden files behind
			}
			found = true
			file := filepath.Join(path, e.Name())
			info, err := os.Stat(file)
			switch {
			case err != nil:
				fail(file, "cannot open: "+reason(err), "")
			case !info.Mode().IsRegular():
				fail(file, "is not a regular file", "regular files named *.yaml or *.yml")
			default:
				add(file, info)
			}
		}
		if !found {
			fail(path, "no rule files in this directory", "at least one *.yaml or *.yml file")
		}
	}
	if len(files) > maxFiles {
		fail(files[maxFiles], "too many rule files", fmt.Sprintf("at most %d", maxFiles))
	}
	return files[:min(len(files), maxFiles)], errs
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
