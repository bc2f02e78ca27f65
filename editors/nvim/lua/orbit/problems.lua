-- :Orbit problems: what compilers and runs complain about, in the quickfix list.
local M = {}

---Errors and warnings of our servers alone, in every file.
function M.list()
  local items = {}
  for _, client in ipairs(vim.lsp.get_clients({ name = 'orbit' })) do
    local namespace = vim.lsp.diagnostic.get_namespace(client.id)
    local wanted = { namespace = namespace, severity = { min = vim.diagnostic.severity.WARN } }
    vim.list_extend(items, vim.diagnostic.toqflist(vim.diagnostic.get(nil, wanted)))
  end
  vim.fn.setqflist({}, ' ', { title = 'Orbit: problems', items = items })
  if #items == 0 then
    vim.cmd.cclose()
    require('orbit.message').say('orbit: no problems')
    return
  end
  vim.cmd('botright copen')
end

return M
