;;; orbit.el --- Run and measure GPU kernels (eglot)  -*- lexical-binding: t -*-
;; For Emacs 30 or newer: load it from your init file. orbit-lsp must be on `exec-path'.
(require 'eglot)
(require 'flymake)

(define-derived-mode orbit-cuda-mode c++-mode "CUDA")
(add-to-list 'auto-mode-alist '("\\.cu\\(h\\|\\.\\(cc\\|cpp\\|cxx\\)\\)?\\'" . orbit-cuda-mode))

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

(defclass orbit-server (eglot-lsp-server) ()
  "orbit-lsp, with what this file adds to eglot: the output of runs, and how they end.")

(cl-defmethod eglot-client-capabilities ((_server orbit-server))
  (plist-put (cl-call-next-method) :experimental '(:orbit (:output t))))

(cl-defmethod eglot-initialization-options ((_server orbit-server))
  (or orbit-settings eglot--{}))

(cl-defmethod eglot-handle-notification ((_server orbit-server) (_method (eql orbit/output)) &key text)
  "Keep what runs print in *orbit output*; windows that are at its end follow."
  (with-current-buffer (get-buffer-create "*orbit output*")
    (unless (derived-mode-p 'special-mode) (special-mode))
    (let* ((inhibit-read-only t)
           (end (point-max))
           (following (seq-filter (lambda (window) (= (window-point window) end))
                                  (get-buffer-window-list nil nil t))))
      (save-excursion (goto-char end) (insert text))
      (dolist (window following) (set-window-point window (point-max))))))

(defvar orbit-running (make-hash-table :test #'equal)
  "The titles of what is under way, by token.")

(cl-defmethod eglot-handle-notification :after
  ((_server orbit-server) (_method (eql $/progress)) &key token value)
  "Show how far a run is and how it ended.
eglot shows progress in the mode line alone, where a window of 80 columns has no room for it."
  (pcase (plist-get value :kind)
    ("begin" (puthash token (plist-get value :title) orbit-running))
    ("report" (when (and (plist-get value :message) (not (active-minibuffer-window)))
                (let ((message-log-max nil)) ; *Messages* keeps how it ended
                  (message "orbit: %s: %s" (gethash token orbit-running "it") (plist-get value :message)))))
    ("end" (when (plist-get value :message)
             (message "orbit: %s: %s" (gethash token orbit-running "it ended") (plist-get value :message)))
           (remhash token orbit-running))))

(defun orbit-output ()
  "Show what runs have printed and how they ended."
  (interactive)
  (let ((window (display-buffer (get-buffer-create "*orbit output*"))))
    (with-current-buffer "*orbit output*" (set-window-point window (point-max)))))

;; eglot has one server for a buffer: for Python, add `python-mode' and `python-ts-mode' here where you want this one.
(add-to-list 'eglot-server-programs
             '((orbit-cuda-mode :language-id "cuda") . (orbit-server "orbit-lsp")))
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
    (if (equal command "showOutput")
        (orbit-output)
      (jsonrpc-async-request server :workspace/executeCommand `(:command ,(concat "orbit." command) :arguments [])
                             :success-fn (lambda (answer) (orbit-answer command answer))))))

(defun orbit-answer (command answer)
  "Show the ANSWER of a COMMAND that has one worth reading."
  (pcase command
    ("info" (with-current-buffer (get-buffer-create "*orbit info*")
              (let ((inhibit-read-only t))
                (erase-buffer)
                (insert (json-serialize answer :null-object nil :false-object :json-false))
                (json-pretty-print-buffer)
                (special-mode)
                (display-buffer (current-buffer)))))
    ("live" (message "orbit: live is %s" (if (eq answer t) "on" "off")))))

(provide 'orbit)
