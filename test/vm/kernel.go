package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/test/vm/boot"
)

// kernel is one unpacked kernel in the cache: a directory with vmlinuz, the
// wanted modules as NAME.ko, and, written last, kernel.json.
type kernel struct {
	dir string

	Package string        // linux-image-…
	Wanted  []string      // modules asked for, to notice when the list changes
	Modules []boot.Module // with dependencies, in the order of loading
}

func (k *kernel) vmlinuz() string { return filepath.Join(k.dir, "vmlinuz") }

// release is what uname -r says on this kernel.
func (k *kernel) release() string { return strings.TrimPrefix(k.Package, "linux-image-") }

// getKernel returns the newest kernel that apt knows for the target, from the
// cache or else downloaded. Without apt's lists the newest cached one serves.
func getKernel(ctx context.Context, cache string, t target) (*kernel, error) {
	pkg, deb, err := newestPackage(ctx, t)
	if err != nil {
		if k := cached(cache, t); k != nil {
			fmt.Printf("vm: %s: %v; taking %s from the cache\n", t.name, err, k.Package)
			return k, nil
		}
		return nil, err
	}
	dir := filepath.Join(cache, strings.TrimSuffix(deb, ".deb"))
	if k, err := readKernel(dir); err == nil {
		return k, nil
	}
	fmt.Printf("vm: %s: downloading %s\n", t.name, pkg)
	k, err := download(ctx, dir, pkg)
	if err != nil {
		return nil, err
	}
	prune(cache, t, dir)
	return k, nil
}

// newestPackage asks apt for the newest package of the target that can be
// downloaded, and for the name of its file.
func newestPackage(ctx context.Context, t target) (pkg, deb string, err error) {
	out, err := output(ctx, "", "apt-cache", "pkgnames", "linux-image-")
	if err != nil {
		return "", "", err
	}
	for _, pkg := range t.newestFirst(strings.Fields(out)) {
		// apt also lists names that no source offers any more.
		out, err := output(ctx, "", "apt-get", "download", "--print-uris", pkg)
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

// download fetches a package and keeps of it what guests need. dir appears
// complete or not at all.
func download(ctx context.Context, dir, pkg string) (_ *kernel, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	if _, err := output(ctx, tmp, "apt-get", "download", "-q", pkg); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return nil, fmt.Errorf("apt-get download %s left %d files", pkg, len(debs))
	}
	tree := filepath.Join(tmp, "tree")
	if _, err := output(ctx, tmp, "dpkg", "-x", debs[0], tree); err != nil {
		return nil, err
	}

	k := &kernel{dir: filepath.Join(tmp, "kernel"), Package: pkg, Wanted: wantedModules()}
	if err := os.Mkdir(k.dir, 0o755); err != nil {
		return nil, err
	}
	images, err := filepath.Glob(filepath.Join(tree, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("%s holds %d kernel images, want 1", pkg, len(images))
	}
	if err := os.Rename(images[0], k.vmlinuz()); err != nil {
		return nil, err
	}
	if k.Modules, err = collectModules(ctx, tree, k.dir); err != nil {
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

// readKernel reads a kernel from the cache. It fails when it was cached for
// another list of modules.
func readKernel(dir string) (*kernel, error) {
	text, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err != nil {
		return nil, err
	}
	k := &kernel{dir: dir}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, err
	}
	if !slices.Equal(k.Wanted, wantedModules()) {
		return nil, errors.New("cached with other modules")
	}
	return k, nil
}

// cached returns the newest cached kernel of the target, or nil.
func cached(cache string, t target) *kernel {
	found := map[string]*kernel{}
	var packages []string
	for _, dir := range cachedDirs(cache, t) {
		if k, err := readKernel(dir); err == nil {
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
