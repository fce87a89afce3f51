package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// kernel is one unpacked kernel in the cache: a directory with vmlinuz, the
// wanted modules as NAME.ko, and, written last, kernel.json.
type kernel struct {
	dir string

	Package string        // linux-image-…
	Release string        // what uname -r says
	Wanted  []string      // modules asked for, to notice when the list changes
	Modules []boot.Module // with dependencies
}

func (k *kernel) vmlinuz() string { return filepath.Join(k.dir, "vmlinuz") }

// getKernel returns the newest kernel that apt knows for the target, from the
// cache or else downloaded. Without apt's lists the newest cached one serves.
func getKernel(ctx context.Context, d dirs, t target) (*kernel, error) {
	from, cache := apt{t.archive, d.apt}, t.cache(d)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	pkg, deb, err := newestPackage(ctx, from, t)
	if err != nil {
		if k := cached(cache, t); k != nil {
			fmt.Printf("vm: %s: %v; taking %s from the cache\n", t.name, err, k.Package)
			return k, nil
		}
		return nil, err
	}
	dir := filepath.Join(cache, strings.TrimSuffix(deb, ".deb"))
	if k, err := readKernel(dir, t.arch); err == nil {
		return k, nil
	}
	fmt.Printf("vm: %s: downloading %s\n", t.name, pkg)
	k, err := download(ctx, from, dir, pkg, t.arch)
	if err != nil {
		return nil, err
	}
	prune(cache, t, dir)
	return k, nil
}

// cache is the directory of a target's kernels: those of another archive have their own.
func (t target) cache(d dirs) string {
	if t.archive == nil {
		return d.kernels
	}
	return filepath.Join(d.kernels, t.archive.name)
}

// newestPackage asks apt for the newest package of the target that can be
// downloaded, and for the name of its file.
func newestPackage(ctx context.Context, from apt, t target) (pkg, deb string, err error) {
	if err := from.update(ctx); err != nil {
		return "", "", err
	}
	out, err := from.output(ctx, "", "apt-cache", "pkgnames", "linux-image-")
	if err != nil {
		return "", "", err
	}
	for _, pkg := range t.newestFirst(strings.Fields(out)) {
		// apt also lists names that no source offers any more.
		out, err := from.output(ctx, "", "apt-get", "download", "--print-uris", pkg)
		if err != nil {
			continue
		}
		// 'http://…' FILE SIZE SHA256:…
		if f := strings.Fields(out); len(f) >= 2 && strings.HasSuffix(f[1], ".deb") {
			return pkg, filepath.Base(f[1]), nil
		}
	}
	return "", "", fmt.Errorf("apt knows no package %s: run \"apt-get update\", with Debian's sources enabled", t.packages)
}

// parts returns the packages that hold a kernel: from 7.0 on, image, modules and
// the list of what is built in have one each, on which that with the name depends.
func parts(ctx context.Context, from apt, pkg string) ([]string, error) {
	out, err := from.output(ctx, "", "apt-cache", "depends", "--no-recommends", "--no-suggests", pkg)
	if err != nil {
		return nil, err
	}
	list := []string{pkg}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && partOfKernel.MatchString(name) {
			list = append(list, name)
		}
	}
	return list, nil
}

var partOfKernel = regexp.MustCompile(`^linux-(base|binary|modules)-\d`)

// download fetches a package and keeps of it what guests need. dir appears
// complete or not at all.
func download(ctx context.Context, from apt, dir, pkg string, a *arch) (_ *kernel, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	tree := filepath.Join(tmp, "tree")
	if err := unpack(ctx, from, tmp, tree, pkg); err != nil {
		return nil, err
	}
	k := &kernel{dir: filepath.Join(tmp, "kernel"), Package: pkg, Wanted: wantedModules(a)}
	if err := os.Mkdir(k.dir, 0o755); err != nil {
		return nil, err
	}
	image, err := oneOf(tree, "boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz")
	if err != nil {
		return nil, fmt.Errorf("%s: kernel image: %w", pkg, err)
	}
	if err := os.Rename(image, k.vmlinuz()); err != nil {
		return nil, err
	}
	modules, err := oneOf(tree, "lib/modules/*", "usr/lib/modules/*")
	if err != nil {
		return nil, fmt.Errorf("%s: modules: %w", pkg, err)
	}
	k.Release = filepath.Base(modules)
	if k.Modules, err = collectModules(ctx, tree, k.dir, a); err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	text, err := json.MarshalIndent(k, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(k.dir, "kernel.json"), text, 0o644); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(k.dir, dir); err != nil {
		return nil, err
	}
	k.dir = dir
	return k, nil
}

// unpack downloads the packages of a kernel, and unpacks them into tree.
func unpack(ctx context.Context, from apt, tmp, tree, pkg string) error {
	all, err := parts(ctx, from, pkg)
	if err != nil {
		return err
	}
	if _, err := from.output(ctx, tmp, "apt-get", append([]string{"download", "-q"}, all...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != len(all) {
		return fmt.Errorf("apt-get download %s left %d files", strings.Join(all, " "), len(debs))
	}
	for _, deb := range debs {
		if _, err := output(ctx, tmp, "dpkg", "-x", deb, tree); err != nil {
			return err
		}
	}
	return nil
}

// oneOf returns the only file or directory that one of these patterns matches.
func oneOf(tree string, patterns ...string) (string, error) {
	var all []string
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(tree, p))
		if err != nil {
			return "", err
		}
		all = append(all, found...)
	}
	if len(all) != 1 {
		return "", fmt.Errorf("%d are there, want 1", len(all))
	}
	return all[0], nil
}

// readKernel reads a kernel from the cache. It fails when it was cached for
// another list of modules.
func readKernel(dir string, a *arch) (*kernel, error) {
	text, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err != nil {
		return nil, err
	}
	k := &kernel{dir: dir}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, err
	}
	if k.Release == "" || !slices.Equal(k.Wanted, wantedModules(a)) {
		return nil, errors.New("cached with other modules")
	}
	return k, nil
}

// cached returns the newest cached kernel of the target, or nil.
func cached(cache string, t target) *kernel {
	found := map[string]*kernel{}
	var packages []string
	for _, dir := range cachedDirs(cache, t) {
		if k, err := readKernel(dir, t.arch); err == nil {
			found[k.Package] = k
			packages = append(packages, k.Package)
		}
	}
	if sorted := t.newestFirst(packages); len(sorted) > 0 {
		return found[sorted[0]]
	}
	return nil
}

// prune removes the target's other kernels from the cache.
func prune(cache string, t target, keep string) {
	for _, dir := range cachedDirs(cache, t) {
		if dir != keep {
			_ = os.RemoveAll(dir)
		}
	}
}

// cachedDirs lists the cache directories of a target: PACKAGE_VERSION_ARCH.
func cachedDirs(cache string, t target) []string {
	all, _ := filepath.Glob(filepath.Join(cache, "linux-image-*"))
	return slices.DeleteFunc(all, func(dir string) bool {
		pkg, _, _ := strings.Cut(filepath.Base(dir), "_")
		return !t.packages.MatchString(pkg)
	})
}
