package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailcam/tailcam/test/vm/boot"
)

func wantedModules(a *arch) []string {
	var s []string
	for _, m := range modules {
		if m.arch == nil || m.arch == a {
			s = append(s, m.name)
		}
	}
	return s
}

// collectModules copies the wanted modules of an unpacked kernel package and
// what they depend on, uncompressed, into dir.
func collectModules(ctx context.Context, tree, dir string, a *arch) ([]boot.Module, error) {
	files, builtin, err := indexModules(tree)
	if err != nil {
		return nil, err
	}
	var list []boot.Module
	done := map[string]bool{}
	var add func(name string, byTest bool) error
	add = func(name string, byTest bool) error {
		if done[name] || builtin[name] {
			return nil
		}
		done[name] = true
		file, found := files[name]
		switch {
		case found:
		case byTest:
			return nil // kernels differ in what they have
		default:
			return fmt.Errorf("no module %s", name)
		}
		image, err := readModule(ctx, file)
		if err != nil {
			return err
		}
		depends, err := dependencies(image)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, d := range depends {
			if err := add(d, byTest); err != nil {
				return fmt.Errorf("%w, which %s needs", err, name)
			}
		}
		list = append(list, boot.Module{Name: name, Needs: depends, ByTest: byTest})
		return os.WriteFile(filepath.Join(dir, name+".ko"), image, 0o644)
	}
	for _, byTest := range []bool{false, true} { // what init needs, too, it loads
		for _, name := range wantedModules(a) {
			if wanted(name).byTest != byTest {
				continue
			}
			if err := add(name, byTest); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// indexModules finds a package's modules by name, and the names of those that
// are built into the kernel.
func indexModules(tree string) (files map[string]string, builtin map[string]bool, err error) {
	files, builtin = map[string]string{}, map[string]bool{}
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if name, ok := moduleName(path); ok {
			files[name] = path
		}
		if d.Name() == "modules.builtin" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, line := range strings.Fields(string(text)) {
				if name, ok := moduleName(line); ok {
					builtin[name] = true
				}
			}
		}
		return nil
	})
	return files, builtin, err
}

// moduleName returns the name by which the kernel knows the module in a file.
func moduleName(path string) (string, bool) {
	base := filepath.Base(path)
	for _, ext := range []string{".ko", ".ko.xz", ".ko.zst", ".ko.gz"} {
		if name, ok := strings.CutSuffix(base, ext); ok {
			return strings.ReplaceAll(name, "-", "_"), true
		}
	}
	return "", false
}

// readModule reads a module, uncompressed.
func readModule(ctx context.Context, path string) ([]byte, error) {
	tool := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}[filepath.Ext(path)]
	if tool == "" {
		return os.ReadFile(path)
	}
	out, err := output(ctx, "", tool, "-dc", path)
	return []byte(out), err
}

// dependencies reads which modules must be loaded before one.
func dependencies(image []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return parseDepends(info), nil
}

// parseDepends finds depends=a,b among the zero-terminated strings of a
// .modinfo section.
func parseDepends(info []byte) []string {
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ",")
		}
	}
	return nil
}
