module github.com/weir-go/weir/lincheck

go 1.26.0

require github.com/weir-go/weir v0.0.0

require github.com/anishathalye/porcupine v1.3.1 // indirect

replace github.com/weir-go/weir => ../
