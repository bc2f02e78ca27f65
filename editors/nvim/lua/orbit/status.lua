-- What the server says for a status line: the GPU that runs go to, and how many are under way.
local M = {}

local known = {} ---@type table<integer, string> by client
local asked = {} ---@type table<integer, true>

---Ask again, once for all that happens in a tenth of a second.
---@param client vim.lsp.Client?
function M.ask(client)
  if not client or asked[client.id] then
    return
  end
  asked[client.id] = true
  vim.defer_fn(function()
    asked[client.id] = nil
    if client:is_stopped() then
      known[client.id] = nil
      return
    end
    client:request('orbit/panel', {}, function(_, panel)
      local text = vim.tbl_get(panel or {}, 'status', 'text')
      if text and text ~= known[client.id] then
        known[client.id] = text
        vim.cmd.redrawstatus({ bang = true })
      end
    end)
  end, 100)
end

---@param buf integer
---@return string
function M.text(buf)
  local client = vim.lsp.get_clients({ name = 'orbit', bufnr = buf })[1]
  return client and known[client.id] or ''
end

return M
