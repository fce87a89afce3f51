// Command goproxy answers some requests by itself; for others it asks a backend, or waits for a
// lock of a file, in goroutines that take them from a channel, while timers go on, as they do in
// services:
//
//	goproxy SOCKET
package main

import (
	"bufio"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const page = "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"

type request struct {
	line string
	done chan string
}

func main() {
	log.SetFlags(0)
	socket := os.Args[1]
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	work := make(chan request)
	for range 4 {
		go func() {
			for r := range work {
				r.done <- handle(socket, r.line)
			}
		}()
	}
	for i := range 3 {
		go func() {
			for range time.Tick(time.Duration(i+2) * time.Millisecond) {
			}
		}()
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(c, work)
	}
}

func serve(c net.Conn, work chan request) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return
	}
	r := request{line, make(chan string)}
	work <- r
	if _, err := io.WriteString(c, <-r.done); err != nil {
		log.Print(err)
	}
}

func handle(socket, line string) string {
	switch {
	case strings.Contains(line, "/slow"):
		c, err := net.Dial("unix", socket+"b")
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		if _, err := io.WriteString(c, line+"\r\n"); err != nil {
			return err.Error()
		}
		answer, err := io.ReadAll(c)
		if err != nil {
			return err.Error()
		}
		return string(answer)
	case strings.Contains(line, "/locked"):
		f, err := os.Open(socket + "l")
		if err != nil {
			return err.Error()
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return err.Error()
		}
	}
	return page
}
