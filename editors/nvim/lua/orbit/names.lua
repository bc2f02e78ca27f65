-- Neovim 0.11 tells only the first of a buffer's servers that |:saveas| and |:file| have given it another name.
local M = {}

local names = {} ---@type table<integer, string>

---@param buf integer
function M.attached(buf)
  names[buf] = vim.api.nvim_buf_get_name(buf)
end

---@param buf integer
function M.written(buf)
  local old, new = names[buf], vim.api.nvim_buf_get_name(buf)
  if not old or old == new then
    return
  end
  names[buf] = new
  local clients = vim.lsp.get_clients({ bufnr = buf })
  for _, client in ipairs(vim.list_slice(clients, 2)) do
    if client.name == 'orbit' then
      client:notify('textDocument/didClose', { textDocument = { uri = vim.uri_from_fname(old) } })
      client:notify('textDocument/didOpen', {
        textDocument = {
          uri = vim.uri_from_bufnr(buf),
          languageId = vim.bo[buf].filetype,
          version = vim.lsp.util.buf_versions[buf] or 0,
          text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\n') .. '\n',
        },
      })
    end
  end
end

return M
