-- Which C and C++ files the server is for: headers that may hold a kernel.
local M = {}

local SUFFIXES = { h = true, hh = true, hpp = true, hxx = true, inl = true, inc = true }

---Whether the server is for this buffer. It looks at the text of a header itself: one too many costs nearly nothing.
---@param buf integer
---@return boolean
function M.is_ours(buf)
  local filetype = vim.bo[buf].filetype
  if filetype ~= 'c' and filetype ~= 'cpp' then
    return true
  end
  local name = vim.api.nvim_buf_get_name(buf)
  if not SUFFIXES[vim.fn.fnamemodify(name, ':e'):lower()] then
    return false
  end
  local text = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\n')
  if text:find('__global__', 1, true) or text:find('KERNEL', 1, true) or text:find('CUTLASS_GLOBAL', 1, true) then
    return true
  end
  for file in vim.fs.dir(vim.fs.dirname(name)) do
    if file:find('%.cuh?$') then
      return true
    end
  end
  return false
end

---A kernel was written into a header that the server was not for.
---@param buf integer
function M.saved(buf)
  local attached = #vim.lsp.get_clients({ bufnr = buf, name = 'orbit' }) > 0
  if not attached and vim.lsp.is_enabled('orbit') and M.is_ours(buf) then
    vim.api.nvim_exec_autocmds('FileType', { group = 'nvim.lsp.enable', buffer = buf, modeline = false })
  end
end

return M
