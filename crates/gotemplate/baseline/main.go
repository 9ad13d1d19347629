// Command baseline asks the real Go what the crate gotemplate has to answer.
//
//	go run . unicode            writes ../src/unicode/tables.rs
//	go run . record             answers the cases in ../tests/cases
//	go run . serve              reads one case as JSON a line, answers one JSON a line (for differential runs)
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . unicode|record|serve")
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "unicode":
		var file *os.File
		if file, err = os.Create("../src/unicode/tables.rs"); err == nil {
			writeUnicode(file)
			err = file.Close()
		}
	case "record":
		err = record("../tests/cases")
	case "serve":
		err = serve(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
