package perfetto

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is the bytes of a protobuf message under construction.
type message []byte

func (m message) uint(field protowire.Number, v uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), v)
}

// int is for the types int32 and int64 of protobuf.
func (m message) int(field protowire.Number, v int64) message { return m.uint(field, uint64(v)) }

func (m message) bool(field protowire.Number, v bool) message {
	return m.uint(field, protowire.EncodeBool(v))
}

func (m message) fixed64(field protowire.Number, v uint64) message {
	return protowire.AppendFixed64(protowire.AppendTag(m, field, protowire.Fixed64Type), v)
}

// text appends a string; protobuf wants UTF-8, and the kernel does not promise it.
func (m message) text(field protowire.Number, v string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), strings.ToValidUTF8(v, "?"))
}

// sub appends a message.
func (m message) sub(field protowire.Number, v message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), v)
}
