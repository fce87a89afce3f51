package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/tailcam/tailcam/test/support/inject"
	"github.com/tailcam/tailcam/test/support/threadctx"
	"github.com/tailcam/tailcam/test/vm/boot"
)

// payload is what all guests of an architecture get alike.
type payload struct {
	arch  *arch
	build string            // directory of what is built
	files map[string]string // executables: guest path to host path
	trees map[string]string // directories: guest path to host path
	tests []boot.Test
	names [][]string // of the tests of each, in their order; empty for another architecture's
}

// tailcam is where tests find the program itself.
const tailcam = "/bin/tailcam"

// injector is where tests find the program that makes work slow on demand.
const injector = "/bin/inject"

// narrow is where tests find a 32-bit program.
const narrow = "/bin/narrow"

// buildPayloads builds what the guests of each architecture get.
func buildPayloads(ctx context.Context, d dirs, opts *options) (map[*arch]*payload, error) {
	all := map[*arch]*payload{}
	for _, a := range arches(opts.kernels) {
		p, err := buildPayload(ctx, d, opts, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		all[a] = p
	}
	return all, nil
}

// buildPayload compiles init, the tests and the injector, all of them static.
func buildPayload(ctx context.Context, d dirs, opts *options, a *arch) (*payload, error) {
	p := &payload{arch: a, build: filepath.Join(d.build, a.name), files: map[string]string{}, trees: map[string]string{}}
	if err := os.MkdirAll(p.build, 0o755); err != nil {
		return nil, err
	}
	p.files["/init"] = filepath.Join(p.build, "init")
	if err := static(ctx, a.name, d.root, "build", "-ldflags=-s -w", "-o", p.files["/init"], "./test/vm/init"); err != nil {
		return nil, err
	}
	for _, pkg := range opts.packages {
		if err := p.addTests(ctx, d, opts, pkg); err != nil {
			return nil, err
		}
	}
	for _, shipped := range []string{"configs/rules.d", "configs/rules.more"} {
		p.trees["/src/"+shipped] = filepath.Join(d.root, shipped)
	}
	p.files[tailcam] = filepath.Join(p.build, "tailcam")
	if err := static(ctx, a.name, d.root, "build", "-ldflags=-s -w", "-o", p.files[tailcam], "./cmd/tailcam"); err != nil {
		return nil, err
	}
	p.files[injector] = filepath.Join(p.build, "inject")
	if err := inject.Compile(a.cc.name, p.files[injector]); err != nil {
		return nil, fmt.Errorf("build the injectors: %w", err)
	}
	p.files[narrow] = filepath.Join(p.build, "narrow")
	if err := static(ctx, a.narrow, d.root, "build", "-ldflags=-s -w", "-o", p.files[narrow], "./test/support/narrow"); err != nil {
		return nil, err
	}
	if err := p.addPublishers(ctx); err != nil {
		return nil, err
	}
	for guest, host := range opts.files {
		p.files[path.Clean(guest)] = host
	}
	return p, nil
}

// addPublishers compiles the program of threadctx in each way that needs no other C library than
// the architecture's, for /contexts/NUMBER/ of the guest.
func (p *payload) addPublishers(ctx context.Context) error {
	maps.Copy(p.files, p.arch.libc)
	for i, way := range threadctx.WaysOn(p.arch.name) {
		if way.Musl() {
			continue
		}
		number := strconv.Itoa(i)
		dir := filepath.Join(p.build, "contexts", number)
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
		program, err := way.Compile(ctx, p.arch.cc.name, dir)
		if err != nil {
			return fmt.Errorf("build a program that publishes contexts: %w", err)
		}
		for _, f := range program.Files() {
			p.files[path.Join("/contexts", number, filepath.Base(f))] = f
		}
	}
	return nil
}

// addTests compiles the tests of one package. In the guest they run in
// /src/PACKAGE, with the package's testdata.
func (p *payload) addTests(ctx context.Context, d dirs, opts *options, pkg string) error {
	out, err := output(ctx, d.root, "go", "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(out)
	rel, err := filepath.Rel(d.root, dir)
	if err != nil || strings.Contains(dir, "\n") || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("-packages: %q: want one package of this repository", pkg)
	}
	rel = filepath.ToSlash(rel)
	name := strings.ReplaceAll(rel, "/", "-") + ".test"
	bin := filepath.Join(p.build, name)
	// Without DWARF, but with symbols: stacks name functions.
	if err := static(ctx, p.arch.name, d.root, "test", "-c", "-ldflags=-w", "-o", bin, "./"+rel); err != nil {
		return err
	}
	if _, err := os.Stat(bin); err != nil {
		return fmt.Errorf("-packages: %s has no tests", pkg)
	}
	test := boot.Test{
		Path: "/tests/" + name,
		// On its own time limit a test binary prints where it hangs.
		Args: []string{"-test.v", "-test.timeout=" + (opts.timeout * 9 / 10).String()},
		Dir:  "/src/" + rel,
	}
	if opts.run != "" {
		test.Args = append(test.Args, "-test.run="+opts.run)
	}
	var names []string
	if p.arch.name == runtime.GOARCH {
		list, err := output(ctx, d.root, bin, "-test.list=.")
		if err != nil {
			return err
		}
		names = strings.Fields(list)
	}
	p.tests, p.names = append(p.tests, test), append(p.names, names)
	p.files[test.Path] = bin
	p.trees[test.Dir] = "" // the directory alone
	if data := filepath.Join(dir, "testdata"); isDir(data) {
		p.trees[test.Dir+"/testdata"] = data
	}
	return nil
}

// static runs go for guests: without cgo, so that binaries need no libraries.
func static(ctx context.Context, goarch, dir string, args ...string) error {
	args = append([]string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + goarch, "go"}, args...)
	_, err := output(ctx, dir, "env", args...)
	return err
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
