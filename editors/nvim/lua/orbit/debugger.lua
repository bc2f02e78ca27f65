-- Attaches nvim-dap to a Triton kernel that waits for its debugger.
local M = {}

---@param params { name: string, host: string, port: integer }
function M.attach(params)
  local there, dap = pcall(require, 'dap')
  if not there then
    require('orbit.message').say(
      ('orbit: attach a debugger for Python to %s:%d, within a minute (nvim-dap is not installed): %s'):format(
        params.host,
        params.port,
        params.name
      )
    )
    return
  end
  dap.adapters.orbit = { type = 'server', host = params.host, port = params.port }
  dap.run({ type = 'orbit', request = 'attach', name = params.name, justMyCode = true })
end

return M
