" Machine code of NVIDIA's GPUs, as orbit-lsp lists it.
if exists('b:current_syntax')
  finish
endif
syntax match orbitSassSource '^//.*'
syntax match orbitSassOffset '/\*\x\+\*/' nextgroup=orbitSassControl skipwhite
syntax match orbitSassControl 'B[-0-9]\{6}:R[-0-9]:W[-0-9]:[-Y]:S\d\d' contained
syntax match orbitSassName '\<\u[A-Z0-9]*\(\.[A-Z0-9_]\+\)*\ze\( \|$\)'
syntax match orbitSassPredicate '@!\?U\?P\w\+'
syntax match orbitSassRegister '\<\(U\?R\(\d\+\|Z\)\|U\?P\(\d\|T\)\|SR_[A-Z.]\+\)\>'
syntax match orbitSassNumber '\<-\?\(0x\x\+\|\d\+\(\.\d\+\)\?\)\>'
highlight default link orbitSassSource Comment
highlight default link orbitSassOffset Comment
highlight default link orbitSassControl Comment
highlight default link orbitSassPredicate PreProc
highlight default link orbitSassRegister Identifier
highlight default link orbitSassNumber Number
highlight default link orbitSassName Statement
let b:current_syntax = 'orbit-sass'
