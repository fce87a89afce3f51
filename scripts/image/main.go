// Command image writes an OCI image of tailcam, for scripts/image.sh: a directory in the OCI image
// layout with an image for each architecture.
//
//	image -name ghcr.io/tailcam/tailcam:v1.0.0 -revision COMMIT -out DIR amd64=FILE.tar arm64=FILE.tar
//
// FILE.tar is the whole root of the image. SOURCE_DATE_EPOCH is its date, in seconds.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

type options struct {
	name     string // with the tag
	revision string
	created  time.Time
	out      string
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "", "`name` of the image, with its tag")
	flag.StringVar(&o.revision, "revision", "", "the `commit`")
	flag.StringVar(&o.out, "out", "", "`directory` to make")
	flag.Parse()
	if err := write(&o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(o *options, roots []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	o.created = time.Unix(seconds, 0).UTC()
	if o.name == "" || o.out == "" || len(roots) == 0 {
		return errors.New("usage: image -name NAME:TAG -out DIR ARCH=FILE")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, root := range roots {
		arch, file, _ := strings.Cut(root, "=")
		image, err := newImage(o, arch, file)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: platform(arch)},
		})
	}
	annotated, ok := mutate.Annotations(index, o.labels()).(v1.ImageIndex)
	if !ok {
		return errors.New("annotate the index")
	}
	path, err := layout.Write(o.out, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	// One entry, so that readers choose the architecture themselves; the first name is for podman and
	// skopeo, the second for containerd.
	err = path.AppendIndex(annotated, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.name,
		"io.containerd.image.name":          o.name,
	}))
	if err != nil {
		return fmt.Errorf("write %s: %w", o.out, err)
	}
	return nil
}

func newImage(o *options, arch, root string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(root, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", root, err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: o.created}, CreatedBy: "scripts/image.sh"},
	})
	if err != nil {
		return nil, fmt.Errorf("add %s: %w", root, err)
	}
	p := platform(arch)
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configure the image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant, file.Created = p.OS, p.Architecture, p.Variant, v1.Time{Time: o.created}
	file.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/tailcam"},
		Cmd:        []string{"run"},
		Env:        []string{"PATH=/usr/bin"},
		User:       "0:0",
		WorkingDir: "/",
		StopSignal: "SIGTERM",
		Labels:     o.labels(),
	}
	return mutate.ConfigFile(image, file)
}

func platform(arch string) *v1.Platform {
	p := &v1.Platform{OS: "linux", Architecture: arch}
	if arch == "arm64" {
		p.Variant = "v8"
	}
	return p
}

func (o *options) labels() map[string]string {
	_, version, _ := strings.Cut(o.name[strings.LastIndex(o.name, "/")+1:], ":")
	labels := map[string]string{
		"org.opencontainers.image.title":       "tailcam",
		"org.opencontainers.image.description": "dashcam for Linux tail latency",
		"org.opencontainers.image.licenses":    "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		"org.opencontainers.image.source":      "https://github.com/tailcam/tailcam",
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.created":     o.created.Format(time.RFC3339),
	}
	if o.revision != "" {
		labels["org.opencontainers.image.revision"] = o.revision
	}
	return labels
}
