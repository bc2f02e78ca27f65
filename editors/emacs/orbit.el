;;; orbit.el --- Run and measure GPU kernels (eglot)  -*- lexical-binding: t -*-
;; For Emacs 30 or newer: load it from your init file. orbit-lsp must be on `exec-path'.
(require 'eglot)
(require 'flymake)

(define-derived-mode orbit-cuda-mode c++-mode "CUDA")
(add-to-list 'auto-mode-alist '("\\.cuh?\\'" . orbit-cuda-mode))

(defun orbit-header-with-kernel-p ()
  "Whether this buffer is a C++ header whose text has a kernel."
  (and buffer-file-name
       (string-match-p "\\.\\(h\\|hh\\|hpp\\|hxx\\|inl\\|inc\\)\\'" buffer-file-name)
       (save-restriction
         (widen)
         (save-excursion (goto-char (point-min)) (search-forward "__global__" nil t)))))
(add-to-list 'magic-mode-alist '(orbit-header-with-kernel-p . orbit-cuda-mode))

(defvar orbit-settings nil
  "Those of docs/guide/settings.md, without `orbit.'.  A project may name compilers and
any compiler flag, and its .venv is used, after `orbit-lsp trust DIR'.")

;; eglot has one server for a buffer: for Python, add `python-mode' and `python-ts-mode' here where you want this one.
(add-to-list 'eglot-server-programs
             '((orbit-cuda-mode :language-id "cuda")
               . (lambda (&rest _) `("orbit-lsp" :initializationOptions ,orbit-settings))))
(add-hook 'orbit-cuda-mode-hook #'eglot-ensure)

(defun orbit-show-numbers ()
  "Show what the server says at the end of its line, at once.
eglot does not ask for new inlay hints after a run; the numbers come as notes too."
  (when (and (eglot-managed-p) (derived-mode-p 'orbit-cuda-mode))
    (setq-local flymake-show-diagnostics-at-end-of-line t)
    (eglot-inlay-hints-mode -1)
    (flymake-mode -1)
    (flymake-mode 1)))
(add-hook 'eglot-managed-mode-hook #'orbit-show-numbers)

(defun orbit (command)
  "Carry out one of the server's commands, on the kernel at point."
  (interactive
   (list (completing-read
          "Orbit: "
          (seq-map (lambda (name) (string-remove-prefix "orbit." name))
                   (eglot-server-capable :executeCommandProvider :commands))
          nil t)))
  (let ((server (or (eglot-current-server) (user-error "No server looks after this buffer"))))
    ;; a command without arguments is about the kernel that was asked about last
    (jsonrpc-async-request server :textDocument/hover (eglot--TextDocumentPositionParams) :success-fn #'ignore)
    (jsonrpc-async-request server :workspace/executeCommand `(:command ,(concat "orbit." command) :arguments [])
                           :success-fn #'ignore)))

(provide 'orbit)
