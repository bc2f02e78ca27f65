-- Which C and C++ files the server is for: headers that may hold a kernel, and CUDA files that Vim takes for C++.
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
  if name:find('%.cu%.c[cpx]+$') then
    return true
  end
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

---The root of a buffer's project: where a marker lies, else the highest folder that has a build file, as the server judges.
---@param buf integer
---@param markers string[]
---@return string?
function M.root(buf, markers)
  local root = vim.fs.root(buf, markers)
  if root then
    return root
  end
  for folder in vim.fs.parents(vim.api.nvim_buf_get_name(buf)) do
    local entry = vim.uv.fs_stat(folder)
    if not entry or folder == vim.uv.os_homedir() or bit.band(entry.mode, 2) ~= 0 then
      break
    end
    for _, name in ipairs({ 'CMakeLists.txt', 'setup.py', 'meson.build', 'Makefile' }) do
      root = vim.uv.fs_stat(folder .. '/' .. name) and folder or root
    end
  end
  return root
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
