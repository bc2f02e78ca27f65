-- nvcc's error on a line where clangd says the same is shown once.
local M = {}

---@class orbit.Published
---@field params lsp.PublishDiagnosticsParams
---@field context lsp.HandlerContext
---@field shown lsp.Diagnostic[]

local published = {} ---@type table<integer, orbit.Published> the server's last words, by buffer

---@param client_id integer
local function hides(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  local options = client and client.config.init_options or {}
  return options.doubled_errors ~= 'show'
end

---The words of a message that stand in quotes: names and types of the program.
---@param message string
local function quoted(message)
  local words = {}
  for _, pattern in ipairs({ "'([^']+)'", '"([^"]+)"' }) do
    for word in message:gmatch(pattern) do
      words[word] = true
    end
  end
  return words
end

---@param one string
---@param other string
local function same(one, other)
  local ours, theirs = quoted(one), quoted(other)
  for word in pairs(ours) do
    if theirs[word] then
      return true
    end
  end
  return next(ours) == nil and next(theirs) == nil
end

---@param buf integer
---@param diagnostics lsp.Diagnostic[]
---@return lsp.Diagnostic[]
local function once(buf, diagnostics)
  local theirs = vim.tbl_filter(function(one)
    return vim.startswith(one.source or '', 'clang')
  end, vim.diagnostic.get(buf, { severity = vim.diagnostic.severity.ERROR }))
  return vim.tbl_filter(function(ours)
    if ours.source ~= 'nvcc' or ours.severity ~= vim.lsp.protocol.DiagnosticSeverity.Error then
      return true
    end
    return not vim.iter(theirs):any(function(one)
      return one.lnum == ours.range.start.line and same(ours.message, one.message)
    end)
  end, diagnostics)
end

---The handler of textDocument/publishDiagnostics.
---@param fault lsp.ResponseError?
---@param params lsp.PublishDiagnosticsParams
---@param context lsp.HandlerContext
function M.publish(fault, params, context)
  if not fault and hides(context.client_id) then
    local buf = vim.uri_to_bufnr(params.uri)
    local shown = once(buf, params.diagnostics)
    published[buf] = { params = params, context = context, shown = shown }
    params = vim.tbl_extend('force', params, { diagnostics = shown })
  end
  vim.lsp.diagnostic.on_publish_diagnostics(fault, params, context)
end

---Somebody's diagnostics have changed.
---@param buf integer
function M.again(buf)
  local known = published[buf]
  if known and not vim.deep_equal(known.shown, once(buf, known.params.diagnostics)) then
    M.publish(nil, known.params, known.context)
  end
end

return M
