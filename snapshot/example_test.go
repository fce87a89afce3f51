package snapshot_test

import (
	"fmt"
	"log"
	"path/filepath"

	"github.com/tailcam/tailcam/snapshot"
)

func ExampleReadMeta() {
	const dir = "/var/lib/tailcam/snapshots"
	ids, err := snapshot.IDs(dir)
	if err != nil {
		log.Fatal(err)
	}
	id, err := snapshot.Find(ids, "20261121T013004") // a unique prefix
	if err != nil {
		log.Fatal(err)
	}
	meta, err := snapshot.ReadMeta(filepath.Join(dir, id))
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range meta.Outliers {
		fmt.Println(o.Rule, o.Task.Comm, o.DelayNS)
	}
}
